#!/usr/bin/env bash
# `ampbench formats`: the range table, user formats, JSON, and what bad input gets.
set -u
fail() {
    echo "FAIL: $*" >&2
    exit 1
}

# rejects TEXT ARGUMENT...: exit status 2, nothing on stdout, one line with TEXT on stderr
rejects() {
    local text="$1" status=0 message
    shift
    message=$("$AMPBENCH" formats "$@" 2>&1 >/dev/null) || status=$?
    [ "$status" = 2 ] || fail "formats $*: exit $status, expected 2"
    [ "$(printf '%s\n' "$message" | wc -l)" = 1 ] || fail "formats $*: more than one line: $message"
    case "$message" in *"$text"*) ;; *) fail "formats $*: expected \"$text\" in: $message" ;; esac
}

table=$("$AMPBENCH" formats) || fail "formats exits $?"
for row in 'fp16 +16 +11 +65504 +6\.10352e-05 +2\^-14 +5\.96046e-08 +2\^-24 +0\.000976562 +2\^-10 +40$' \
    'bf16 +16 +8 +3\.38953e\+38 .* 261$' 'fp32 +32 +24 +3\.40282e\+38 .* 277$' 'tf32 +19 +11 .* 264$' \
    'fp64 +64 +53 +1\.79769e\+308 .* 2098$' 'fp8_e4m3 +8 +4 +448 .* 18$' 'fp8_e5m2 +8 +3 +57344 .* 32$' \
    'nvfp4 +16 +fp4_e2m1 +fp8_e4m3 +4\.5'; do
    printf '%s\n' "$table" | grep -Eq "^$row" || fail "no row /$row/ in: $table"
done

"$AMPBENCH" formats e6m9 | grep -Eq '^e6m9 +16 +10 +4\.29077e\+09' || fail "user format e6m9"
"$AMPBENCH" formats --json - fp16 | tr -d ' \t\n' |
    grep -q '"max":65504,.*"overflow_limit":65520,"overflow_at_limit":true' ||
    fail "JSON of fp16"
"$AMPBENCH" formats --help | grep -q -- --prove || fail "help"

rejects 'nearest: fp16' fp17
rejects 'nearest: nvfp4' nvfp5
rejects '2..11' e12m3
rejects 'nearest: --prove' --prov fp16,rne
rejects 'FORMAT,MODE' --prove fp16
rejects 'rne, rna, rz, ru, rd' --prove fp16,nearest
rejects 'saturate, ftz_before or ftz_after' --prove fp16,rne,clamp
rejects 'at most 24 significand' --prove fp64,rne
rejects 'mode sr' --prove fp16,sr
rejects 'cannot write' --json /nonexistent/formats.json
rejects 'file name' --json

# Which updates a stored weight swallows: the neighbours of 1 are 2^-10 away in fp16 and 2^-7 in bf16.
swallows() { # FORMAT TEXT
    local text
    text=$("$AMPBENCH" formats --swallow "$1") || fail "formats --swallow $1 exits $?"
    case "$text" in *"$2"*) ;; *) fail "formats --swallow $1: expected \"$2\" in: $text" ;; esac
}
swallows fp16 '|w|/|dw| below 2^11: never swallowed'
swallows fp16 '1            0.0009765625 0.0004882813   2^11 '
swallows fp16 '100 + 0.03125 = 100'
swallows bf16 '|w|/|dw| below 2^8: never swallowed'
swallows bf16 '1            0.0078125    0.00390625     2^8 '
swallows fp32 'from 2^25 on: always swallowed'
rejects 'unknown format' --swallow fp33
rejects 'stands alone' --swallow fp16 bf16
