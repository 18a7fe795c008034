#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
doctor_test_schema.py SNAPSHOT FILE...: compare the keys and types of JSON files with a snapshot

Every key of a file has to be in the snapshot with its type, and every key of the snapshot in some
file. UPDATE=1 writes the snapshot anew; types that it has stay, since no machine shows all of them.
"""
import json
import os
import sys

NAMES = {dict: 'object', list: 'array', str: 'string', bool: 'bool', int: 'number',
         float: 'number', type(None): 'null'}


def look(node, path, found):
    found.setdefault(path or '(top)', set()).add(NAMES[type(node)])
    if isinstance(node, dict):
        for key, value in node.items():
            look(value, f'{path}.{key}'.lstrip('.'), found)
    elif isinstance(node, list):
        for value in node:
            look(value, path + '[]', found)


def read_snapshot(path):
    with open(path, encoding='utf-8') as f:
        return {line.split()[0]: set(line.split()[1:]) for line in f}


def main():
    snapshot, found, wrong = sys.argv[1], {}, []
    for name in sys.argv[2:]:
        with open(name, encoding='utf-8') as f:
            look(json.load(f), '', found)
    old = read_snapshot(snapshot) if os.path.exists(snapshot) else {}
    if os.environ.get('UPDATE'):
        old = {key: found[key] | old.get(key, set()) for key in found}
        with open(snapshot, 'w', encoding='utf-8') as f:
            f.writelines(f'{key} {" ".join(sorted(old[key]))}\n' for key in sorted(old))
    for key in sorted(found.keys() | old.keys()):
        if key not in found:
            wrong.append(f'{key}: no file has it')
        elif not found[key] <= old.get(key, set()):
            wrong.append(f'{key}: is {sorted(found[key])}, expected {sorted(old.get(key, []))}')
    print(*wrong, sep='\n')
    return bool(wrong) or not found


sys.exit(main())
