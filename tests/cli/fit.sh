# `ampbench fit`: the batch it prints trains within the limit and the next one does not; half levels fit more;
# recomputed blocks fit more; bad input is refused. `ampbench run --memory-limit` fails a cell that needs more
# and says what did.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"

limit=24MiB
common=(--net resnet8 --data synthetic --threads 1)

# batch_of LEVEL: the batch of a level in the last table.
batch_of() { awk -v level="$1" '$1 == level { print $3 }' "$work/out"; }

# trains BATCH LEVEL: exit status of a run of one step within the limit.
trains() {
    run run "${common[@]}" --levels "$2" --batch "$1" --steps 1 --rounds 1 --no-floor --no-plots \
        --probe-every 0 \
        --memory-limit "$limit" --out "$work/trains.json"
}

run fit "${common[@]}" --levels O0,O2 --memory-limit "$limit"
expect_rc 0 "fit"
cp "$work/out" "$work/table"
o0=$(batch_of O0) o2=$(batch_of O2)
checks=$((checks + 1))
[ "${o0:-0}" -gt 1 ] && [ "${o2:-0}" -gt "$o0" ] || fail "O2 fits more than O0: $(cat "$work/table")"
trains "$o0" O0
expect_rc 0 "the batch that fits trains"
trains $((o0 + 1)) O0
expect_rc 2 "the next one does not"
expect_text "$work/err" "of the limit of" "the cell that needs more"

run fit "${common[@]}" --level O0 --memory-limit "$limit" --recompute all
expect_rc 0 "fit with recomputed blocks"
checks=$((checks + 1))
[ "$(batch_of O0)" -gt "$o0" ] || fail "recomputed blocks fit more: $(cat "$work/out")"

run fit "${common[@]}" --levels O0 --memory-limit 10kB
expect_rc 2 "nothing fits"
expect_text "$work/err" "hold no batch of resnet8" "nothing fits"
run fit "${common[@]}"
expect_rc 2 "no limit"
expect_text "$work/err" "expected --memory-limit BYTES" "no limit"
run fit --memory-limit 3parsecs
expect_rc 2 "a bad limit"
expect_text "$work/err" "expected bytes such as 512MiB or 2GB, found '3parsecs'" "a bad limit"
run fit --memory-limit 1GB --batch 3
expect_rc 2 "a batch"
expect_text "$work/err" "--batch: fit does not take it" "a batch"
run run --net resnet8 --data synthetic --recompute stage9
expect_rc 2 "an unknown block"
expect_text "$work/err" 'no block of network resnet8 is called "stage9"' "an unknown block"
run fit --net mlp --data synthetic --level O0 --memory-limit 64MiB --json "$work/table.json"
expect_rc 2 "an output file"
expect_text "$work/err" "fit: --json: the table goes to stdout and nothing is written" "an output file"
[ -e "$work/table.json" ] && fail "fit --json wrote a file"
run fit --help
expect_rc 0 "help"
expect_text "$work/out" "usage: ampbench fit" "help"
finish
