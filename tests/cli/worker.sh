# The hidden subcommand `worker`: it trains for the process that started it, and for nobody else.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
cd "$work" || exit 1
cell=mlp/O0/1/fp16/cpu/seed1
options="--net mlp --levels O0 --data synthetic --batch 16 --steps 3 --threads 1"

# shellcheck disable=SC2086 # a list of options
run worker "$cell" 0 0 -1 $$ $options
expect_rc 0 "a worker of this process"
expect_text out '"event":"step","step":2' "a worker of this process"

# shellcheck disable=SC2086
run worker "$cell" 0 0 -1 1 $options
expect_rc 1 "a worker whose parent is another process"
expect_text err "its parent, process 1, has ended" "a worker whose parent is another process"
expect_no_text out '"event"' "a worker whose parent is another process"

# The parent ends before the worker can ask to end with it.
# shellcheck disable=SC2016 # for the inner shell
sh -c 'parent=$$
    { while kill -0 $parent; do sleep 0.01; done; "$@" $parent '"$options"'; echo "ended $?" >>orphan; } >orphan 2>&1 &' \
    parent "$AMPBENCH" worker "$cell" 0 0 -1
for _ in $(seq 1000); do
    grep -q "^ended" orphan && break
    sleep 0.01
done
expect_text orphan "ended 1" "an orphan"
expect_text orphan "has ended" "an orphan"
expect_no_text orphan '"event"' "an orphan"

run worker "$cell" 0 0 -1
expect_rc 2 "a worker without a parent"
finish
