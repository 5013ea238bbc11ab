#!/bin/sh
# Answers as a Python would, with what stands in files beside it.
[ ! -e "$0.answer" ] || cat "$0.answer"
[ ! -e "$0.hangs" ] || exec tail -f /dev/null
[ ! -e "$0.error" ] || { cat "$0.error" >&2; exit 1; }
