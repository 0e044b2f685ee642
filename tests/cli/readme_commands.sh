# Every ampbench command that README.md and the pages of docs/ show is understood by the program, so that no
# option, name or command of the text is out of date. Commands are run as written; a run is only planned, and
# what needs the reader's files is looked up in the command's help.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"

# commands FILE: lines of ```sh blocks that start with "ampbench" (or a path to it), continuation lines
# joined, comments cut.
commands() {
    awk '/^```(sh|bash|console)[[:space:]]*$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$1" |
        sed -e ':a' -e '/\\$/N; s/\\\n/ /; ta' -e 's/^\$ //' -e 's/[[:space:]]#.*$//' |
        grep -E '^((\./)?[A-Za-z0-9_./-]*/)?ampbench([[:space:]]|$)' || true
}

# split LINE: its words into the array `arguments`, quotes honoured, nothing expanded; pipes and redirections
# are cut off.
split() {
    mapfile -t arguments < <(xargs -n 1 printf '%s\n' <<<"${1%%[|>;&]*}")
    arguments=("${arguments[@]:1}")
}

# understood FILE LINE
understood() {
    split "$2"
    case "${arguments[*]:-help}" in
    run* | fit* | -*) options_known "$1" "$2" ;; # a fit would take a while
    # needs files, or minutes
    report* | history* | diagnose* | advise* | promote* | inspect* | read* | ranks* | gate* | compare* | \
        *--prove* | *--replay*)
        command_known "$1" "$2" "${arguments[0]}" ;;
    *)
        run "${arguments[@]}"
        expect_rc 0 "$1: $2"
        ;;
    esac
}

# A run is not run: its options are checked by asking for the plan of the same options (files of the example
# are left out).
options_known() {
    local -a kept=()
    local word
    case ${arguments[0]} in run | fit) arguments=("${arguments[@]:1}") ;; esac
    while [ "${#arguments[@]}" -gt 0 ]; do
        word=${arguments[0]}
        arguments=("${arguments[@]:1}")
        case $word in
        --help | -h) kept=(--help) && break ;;
        --net | --init | --data)
            is_option "$1" "$2" "$word"
            case ${arguments[0]} in */* | *.*) ;; *) kept+=("$word" "${arguments[0]}") ;; esac \
                # not the user's files
            arguments=("${arguments[@]:1}")
            ;;
        --no-plots | --resume) is_option "$1" "$2" "$word" ;; # a plan writes nothing and refuses them
        --out | --label | --json | --csv | --markdown | --html | --save-weights | --save-gradients | \
            --checkpoint)
            is_option "$1" "$2" "$word"
            arguments=("${arguments[@]:1}")
            ;;
        --set) # several losses are those of the reader's network
            case ${arguments[0]} in num_losses=*) is_option "$1" "$2" "$word" ;; *) kept+=("$word" \
                "${arguments[0]}") ;; esac
            arguments=("${arguments[@]:1}")
            ;;
        *) kept+=("$word") ;;
        esac
    done
    run plan "${kept[@]}"
    expect_rc 0 "$1: $2"
}

# is_option FILE LINE OPTION
is_option() {
    checks=$((checks + 1))
    "$AMPBENCH" run --help | grep -q -- "^  $3 " || fail "$1: no option $3: $2"
}

# Commands that read files of the example: the command and each of its --options must be in its help, or in
# that of a run if it trains first (--run).
command_known() {
    local word
    run "$3" --help
    expect_rc 0 "$1: $2"
    cp "$work/out" "$work/help"
    case " ${arguments[*]} " in *" --run "*) "$AMPBENCH" run --help >>"$work/help" ;; esac
    for word in "${arguments[@]:1}"; do
        [ "$word" = -- ] && break # what follows is a run's
        case $word in --*) expect_text "$work/help" "${word%%=*}" "$1: $2" ;; esac
    done
}

found=0
cd "$work" || exit 1
for page in "$AMPBENCH_SOURCE"/README.md "$AMPBENCH_SOURCE"/docs/*.md; do
    [ -e "$page" ] || continue
    while IFS= read -r line; do
        found=$((found + 1))
        understood "$(basename "$page")" "$line"
    done < <(commands "$page")
done
if [ ! -e "$AMPBENCH_SOURCE/README.md" ]; then
    printf 'no README.md\n'
    exit 77
fi
[ "$found" -gt 0 ] || fail "README.md shows no ampbench command"
finish
