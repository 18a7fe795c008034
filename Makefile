# SPDX-License-Identifier: BSD-3-Clause
#
# A front to meson: "make demo" on a fresh machine installs what is missing, builds and runs.

BUILD   ?= build
MESON   ?= meson
export MESON
PREFIX  ?= /usr/local
DESTDIR ?=
CLANG   ?= clang
NINJA   := $(MESON) compile -C

# What "make demo" gives the tool; modest, so that it ends in seconds.
DEMO_ARGS ?= -s 1M

.PHONY: all demo test test-vm check slow hw install clang sanitize cross clean help

all: $(BUILD)/build.ninja
	@$(NINJA) $(BUILD)

help:
	@echo "make            build into $(BUILD)/"
	@echo "make demo       install what is missing, build, time copies on the GPU or the soft GPU, draw it,"
	@echo "                and move data between two servers, which are two network namespaces"
	@echo "make test       the same, then run all tests that need no GPU"
	@echo "make slow       the tests that take minutes: millions of messages, killed processes"
	@echo "make hw         the tests and figures that need a GPU"
	@echo "make test-vm    RDMA verbs without a network card: soft-RoCE in guests of QEMU"
	@echo "make clang      build with clang, warnings are errors, and test"
	@echo "make sanitize   build and test with ASan and UBSan, then with TSan"
	@echo "make cross      arm64 built and tested under emulation, ppc64le built"
	@echo "make install    PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)"
	@echo "make clean      remove build*/"

$(BUILD)/build.ninja:
	@$(MESON) setup $(BUILD) --prefix $(PREFIX) --libdir lib

demo:
	@scripts/setup.sh demo
	@$(MAKE) --no-print-directory $(BUILD)/build.ninja
	@$(NINJA) $(BUILD) barway:executable two_servers
	$(BUILD)/tools/barway copylat $(DEMO_ARGS) \
		$$(command -v gnuplot >/dev/null 2>&1 && echo --plot $(BUILD)/copies.svg)
	scripts/demo-two-servers $(BUILD)/examples/two_servers || [ $$? = 77 ]

test:
	@scripts/setup.sh test
	@$(MAKE) --no-print-directory all
	@scripts/run-tests $(BUILD)

check: test

slow:
	@scripts/setup.sh test
	@$(MAKE) --no-print-directory all
	@scripts/run-tests --suite slow $(BUILD)

hw:
	@scripts/hw.sh

install: all
	@$(MESON) configure $(BUILD) -Dprefix=$(PREFIX)
	$(MESON) install -C $(BUILD) $(if $(DESTDIR),--destdir $(abspath $(DESTDIR)))
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then \
		PATH="$$PATH:/usr/sbin:/sbin" ldconfig 2>/dev/null || :; fi

test-vm:
	@scripts/setup.sh vm
	@$(MAKE) --no-print-directory $(BUILD)/build.ninja
	@scripts/test-vm $(BUILD)

clang:
	@scripts/build-clang

sanitize:
	@scripts/build-sanitize

cross:
	@scripts/build-cross

clean:
	rm -rf build build-*
