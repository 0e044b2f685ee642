# `ampbench completion`: what bash, zsh and fish offer, made from the program's own help.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
cd "$work" || exit 1
touch result.json
for shell in bash zsh fish; do
    run completion $shell
    expect_rc 0 "$shell"
    [ ! -s err ] || fail "$shell: $(cat err)"
    cp out "script.$shell"
done
# shellcheck disable=SC1091
. ./script.bash

# offers WORD... : what bash offers for the last word, in $reply.
offers() {
    COMP_WORDS=(ampbench "$@")
    COMP_CWORD=$#
    COMPREPLY=()
    _ampbench
    reply=" ${COMPREPLY[*]} "
}
# expect_offer WORD WHAT / expect_no_offer WORD WHAT
expect_offer() {
    checks=$((checks + 1))
    case $reply in *" $1 "*) ;; *) fail "$2: no $1 in: $reply" ;; esac
}
expect_no_offer() {
    checks=$((checks + 1))
    case $reply in *" $1 "*) fail "$2: $1 in: $reply" ;; esac
}

offers g
expect_offer gate "a command"
expect_no_offer run "a command"
offers --lev
expect_offer --levels "an option without a command"
offers run --opt
expect_offer --optimizer "an option"
expect_offer --optimizer-state "an option"
offers run --optimizer ad
expect_offer adamw "a value"
expect_no_offer sgd "a value"
offers run --levels O0,O
expect_offer O0,O3 "a value in a list"
offers run --out res
expect_offer result.json "a file"
offers run --steps ""
expect_no_offer result.json "a number"
offers report res
expect_offer result.json "a document"
offers report --h
expect_offer --html "an option of report"
expect_offer --help "an option of report"
expect_no_offer --half "an option of report"
offers plan --n
expect_offer --net "an option that plan shares with run"
offers list sched
expect_offer schedules "a kind"
offers help ex
expect_offer exit "a topic"
for command in $("$AMPBENCH" help | awk '/^Commands/ { on = 1; next } /^$/ { on = 0 } on { print $1 }'); do
    offers "${command:0:2}"
    expect_offer "$command" "every command"
    for option in $("$AMPBENCH" "$command" --help | grep -oE '^ +--[a-z][a-z0-9-]+' | sort -u); do
        offers "$command" "$option"
        expect_offer "$option" "every option of $command"
    done
done

if command -v zsh >/dev/null; then
    checks=$((checks + 1))
    expect_text script.zsh 'torch\\\:autocast' \
        "zsh: a name with a colon (unescaped once by _arguments, once by eval, once by _values)"
    zsh -n script.zsh || fail "zsh does not read its script"
fi
if command -v fish >/dev/null; then
    fish --no-config -c 'source script.fish; complete -C "ampbench run --optimizer ad"
        complete -C "ampbench --lev"; complete -C "ampbench ga"' >fish.out 2>&1
    expect_text fish.out adamw "fish: a value"
    expect_text fish.out --levels "fish: an option"
    expect_text fish.out gate "fish: a command"
fi
run completion csh
expect_rc 2 "an unknown shell"
run completion
expect_rc 2 "no shell"
finish
