#!/bin/sh
# `timeout`, by which the tool starts every program on a host, as tests/faults put it first in the host's PATH: who is
# started with the words of a breakpoint (/run/breakpoints/NAME.at) takes it (NAME.hit), and goes on once that is gone.
for at in /run/breakpoints/*.at; do
    { read -r words <"$at"; } 2>/dev/null || continue
    case "$*" in *"$words"*) ;; *) continue ;; esac
    hit=${at%.at}.hit
    mv "$at" "$hit" 2>/dev/null || continue
    while [ -e "$hit" ]; do sleep 0.02; done
done
exec /usr/bin/timeout "$@"
