/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net/stream: transfers in order with a stream of the caller's. The stream stores a word when its
 * earlier work is done, which progress looks at; and waits for another word, which progress stores
 * when the transfer has come so far, or has failed. No thread waits for the stream.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/fault.h"
#include "net/net_int.h"

#define PAGE_BYTES 4096u
#define WORD_BYTES 128u /* two lines: each side polls one and writes the other */
#define HOLD 8u         /* place of the second word, in words */

struct bw_word_page {
	struct bw_word_page *next;
	struct bw_device *dev;
	void *host;
	struct bw_word *free;
	struct bw_word word[PAGE_BYTES / WORD_BYTES];
};

static int page_new(struct bw_ep *ep, struct bw_device *dev, struct bw_word_page **out)
{
	struct bw_word_page *page = bw_alloc(sizeof(*page));
	uint64_t addr;
	int ret;

	if (!page)
		return bw_err(ENOMEM, "no memory for words of streams: free some");
	ret = dev->ops->host_alloc(dev, PAGE_BYTES, &page->host, &addr);
	if (ret) {
		free(page);
		return bw_err_prefix(ret, "memory for words of streams");
	}
	memset(page->host, 0, PAGE_BYTES);
	page->dev = dev;
	for (unsigned i = 0; i < PAGE_BYTES / WORD_BYTES; i++) {
		struct bw_word *w = &page->word[i];

		w->dev = dev;
		w->at = (uint64_t *)(void *)((char *)page->host + (size_t)i * WORD_BYTES);
		w->addr = addr + (uint64_t)i * WORD_BYTES;
		w->next = page->free;
		page->free = w;
	}
	page->next = ep->words;
	ep->words = page;
	*out = page;
	return 0;
}

/* With ep->lock held. */
static int word_get(struct bw_ep *ep, struct bw_device *dev, struct bw_word **out)
{
	struct bw_word_page *page = ep->words;
	int ret = 0;

	while (page && (page->dev != dev || !page->free))
		page = page->next;
	if (!page)
		ret = page_new(ep, dev, &page);
	if (ret)
		return ret;
	*out = page->free;
	page->free = (*out)->next;
	return 0;
}

void bw_words_free(struct bw_ep *ep)
{
	while (ep->words) {
		struct bw_word_page *next = ep->words->next;

		ep->words->dev->ops->host_free(ep->words->host);
		free(ep->words);
		ep->words = next;
	}
}

void bw_stream_drop(struct bw_xfer *t)
{
	struct bw_word_page *page = t->flow.peer->ep->words;
	struct bw_word *w = t->word;

	if (!w)
		return;
	t->word = NULL;
	if (w->late)
		return;
	while (w < page->word || w >= page->word + PAGE_BYTES / WORD_BYTES)
		page = page->next;
	w->next = page->free;
	page->free = w;
}

static uint64_t load_word(const struct bw_word *w)
{
	return __atomic_load_n(&w->at[0], __ATOMIC_ACQUIRE);
}

void bw_stream_release(struct bw_xfer *t)
{
	if (t->word)
		__atomic_store_n(&t->word->at[HOLD], t->word->turn, __ATOMIC_RELEASE);
}

void bw_stream_forget(struct bw_xfer *t)
{
	struct bw_xfer **at = &t->flow.peer->ep->on_stream;

	if (!t->on_stream)
		return;
	t->word->late = true; /* the stream may store it at any time */
	while (*at && *at != t)
		at = &(*at)->stream_next;
	if (*at)
		*at = t->stream_next;
	t->on_stream = false;
}

/* Those whose streams have come so far begin, in the order of posting. */
void bw_stream_turn(struct bw_ep *ep)
{
	struct bw_xfer *ready = NULL, **at = &ep->on_stream;

	while (*at) {
		struct bw_xfer *t = *at;

		if (load_word(t->word) < t->word->turn) {
			at = &t->stream_next;
			continue;
		}
		*at = t->stream_next;
		t->on_stream = false;
		t->stream_next = ready; /* the list has the newest first */
		ready = t;
	}
	while (ready) {
		struct bw_xfer *t = ready;

		ready = t->stream_next;
		t->ready_ns = bw_now_ns();
		bw_xfer_begin(t);
	}
}

/* What the stream is given. After the first of it the transfer has to be posted. */
static int put_on_stream(struct bw_xfer *t, struct bw_device *dev, void *stream, bool hold)
{
	struct bw_word *w = t->word;
	int ret;

	ret = dev->ops->stream_capturing(dev, stream);
	if (ret > 0)
		return bw_err(ENOTSUP, "the stream is being captured into a graph, which would "
			      "post it once for all launches: post it outside of the capture");
	if (ret < 0)
		return ret;
	ret = dev->ops->stream_write(dev, stream, w->addr, w->turn);
	if (!ret && hold)
		ret = dev->ops->stream_wait(dev, stream, w->addr + HOLD * sizeof(uint64_t),
					    w->turn);
	return ret;
}

int bw_xfer_post_on_stream(struct bw_xfer *t, struct bw_device *dev, void *stream, bool hold)
{
	struct bw_ep *ep = t->flow.peer->ep;
	int ret = bw_xfer_claim(t);

	if (ret)
		return ret;
	if (!t->word || t->word->dev != dev || t->word->late) {
		bw_ep_lock(ep);
		bw_stream_drop(t);
		ret = word_get(ep, dev, &t->word);
		bw_ep_unlock(ep);
		if (!ret && !t->word->turn)
			t->word->turn = load_word(t->word);
	}
	if (!ret) {
		t->word->turn++;
		ret = put_on_stream(t, dev, stream, hold);
	}
	if (ret) {
		if (t->word)
			bw_stream_release(t); /* should it wait already */
		atomic_store(&t->reached, BW_REACHED_NEW);
		return ret;
	}
	t->on_stream = true;
	t->hold = hold;
	bw_xfer_launch(t);
	atomic_store_explicit(&t->returned_ns, bw_now_ns(), memory_order_relaxed);
	return 0;
}
