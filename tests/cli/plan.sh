# `ampbench plan` takes the options of a run: what a run refuses it refuses with the same words, it writes
# nothing and refuses options for that, and what has no effect at the levels run is said by both.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
cd "$work" || exit 1
short="--device cpu --steps 2 --rounds 1 --no-floor --no-plots --eval-limit 64 --quiet --out run.json"

# both TEXT OPTION...: plan and run end with status 2 and the same message.
both() {
    local expected=$1
    shift
    run plan --net lenet5 --device cpu "$@"
    expect_rc 2 "plan $*"
    grep -v ': info:' err >plan_says
    expect_text plan_says "$expected" "plan $*"
    # shellcheck disable=SC2086
    run run --net lenet5 $short "$@"
    expect_rc 2 "run $*"
    grep -v ': info:' err >run_says
    checks=$((checks + 1))
    cmp -s plan_says run_says || fail "$*: plan says '$(cat plan_says)', run '$(cat run_says)'"
}

both "found 'fashion'; did you mean 'fashion_mnist'?" --data fashion
both "expected a directory with IDX files" --data ./nothing
both "the net's input is" --data synthetic_text
both "expected a directory with IDX files, found nothing there" --data no/where
both "nothing is compared; give --shadow-every N" --shadow decensor
both "nothing is reduced" --reduce tree
both "--no-decay or --param-groups" --no-decay nothing
both "letter" --levels o1
both "images of 28x28 become 30x30, expected the net's input, 32x32" --data synthetic --pad 1
both "one for each of 1 channels, found 2" --data synthetic --normalize 0.1/0.2,0.3/0.4

# What fits is planned; the data is not read where no option speaks of it.
run plan --net lenet5 --level O2 --data synthetic --pad 2 --normalize 0.1307/0.3081
expect_rc 0 "a padding that fits"
run plan --net lenet5 --level=O1
expect_rc 0 "--level=O1"
expect_text out "lenet5/O1/" "--level=O1"
run run --net lenet5 --data synthetic $short --level O1
expect_rc 0 "run --level O1"

# A plan writes nothing.
for option in "--out x.json" "--csv x.csv" "--markdown x.md" "--html x.html" "--label x" "--save-weights x" \
    --no-plots --resume "--json -"; do
    # shellcheck disable=SC2086
    run plan --net lenet5 --level O2 $option
    expect_rc 2 "plan $option"
    expect_text err "plan: ${option%% *}: a plan goes to stdout and nothing is written" "$option"
done
checks=$((checks + 1))
[ -z "$(ls x* 2>/dev/null)" ] || fail "a plan wrote $(ls x*)"

# Options of dynamic loss scales have no effect without one.
text="--min-loss-scale, --scale-window: without effect: no cell has a dynamic loss scale"
run plan --net lenet5 --levels O2 --scales 128 --min-loss-scale 2 --scale-window 9
expect_rc 0 "fixed scales alone"
expect_text err "$text" "plan"
# shellcheck disable=SC2086
run run --net lenet5 --data synthetic $short --levels O2 --scales 128 --min-loss-scale 2 --scale-window 9
expect_text err "$text" "run"
expect_text run.json "$text" "the document"
run plan --net lenet5 --levels O2 --scales 128,dynamic --min-loss-scale 2
checks=$((checks + 1))
grep -q "without effect" err && fail "a cell has a dynamic scale: $(cat err)"
finish
