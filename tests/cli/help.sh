# `ampbench help`: every topic and command is explained; manual pages hold every option and are clean troff.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
cd "$work" || exit 1
run help
expect_rc 0 "help"
cp out overview
run
cmp -s out overview || fail "no arguments: not the same as help"
run --help
cmp -s out overview || fail "--help: not the same as help"
names() { awk -v part="$1" '$0 ~ "^" part { on = 1; next } /^$/ { on = 0 } on { print $1 }' overview; }
for topic in $(names Topics); do
    run help "$topic"
    expect_rc 0 "help $topic"
    [ "$(wc -l <out)" -ge 3 ] || fail "help $topic says little"
done
run help exit
for status in 0 1 2 3 4 5 6 130; do
    checks=$((checks + 1))
    grep -qE "^ +$status  [a-z]" out || fail "help exit: no $status"
done
run help levels
expect_text out "fp32 training: the baseline" "help levels"
run help probes
expect_text out "(default)" "help probes"

check_page() { # FILE WHAT
    checks=$((checks + 1))
    command -v man >/dev/null || return 0
    man --warnings -l "$1" >/dev/null 2>warnings || fail "$2: man fails"
    # shellcheck disable=SC2015
    [ -s warnings ] && fail "$2: $(head -3 warnings)" || true
}
run help --man
expect_rc 0 "the manual page"
cp out page
expect_text page ".SH \"EXIT STATUS\"" "the manual page"
expect_text page "License: Apache\\-2.0" "the manual page"
check_page page "the manual page"
for command in $(names Commands); do
    run help "$command"
    expect_rc 0 "help $command"
    run help --man "$command"
    expect_rc 0 "help --man $command"
    cp out page
    expect_text page "License: Apache\\-2.0" "$command's page"
    check_page page "$command's page"
    for option in $("$AMPBENCH" "$command" --help | grep -oE '^ +--[a-z][a-z0-9-]+' | sort -u); do
        expect_text page ".B ${option//-/\\-}" "$command's page"
    done
done
run help networks
expect_rc 0 "help networks"
cp out networks
run list ops
expect_rc 0 "list ops"
while read -r op _; do expect_text networks "  $op: " "help networks"; done <out
run list ops --attributes
for text in "conv2d: 1 input" "kernel_size        integer or [height, width] from 1 to 1024, required" \
    "stride             integer or [height, width] from 1 to 1024, default 1" \
    "add: 1 input, 1 more optional" \
    "bias               true or false, default true" "one of train|eval, default train"; do
    expect_text out "$text" "list ops --attributes"
done
run list nets --attributes
expect_rc 2 "attributes of nets"
expect_text err "list nets: expected no option, found '--attributes'" "attributes of nets"
run list levels --tabel
expect_rc 2 "a misspelt view"
expect_text err "did you mean '--table'?" "a misspelt view"
run list levels opps
expect_rc 2 "an unknown kind behind a known one"
[ ! -s out ] || fail "a list was printed beside an error"
run help levls
expect_rc 2 "an unknown topic"
expect_text err "did you mean 'levels'?" "an unknown topic"
run help --man nothing
expect_rc 2 "a page of nothing"
run help a b
expect_rc 2 "two topics"
finish
