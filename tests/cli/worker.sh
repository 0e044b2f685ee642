# The hidden subcommand `worker`: it trains one cell and prints events. kernels/spawn ends it with the process
# that started it: unit.test_spawn, cli.children.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
cd "$work" || exit 1
cell=mlp/O0/1/fp16/cpu/seed1
options="--net mlp --levels O0 --data synthetic --batch 16 --steps 3 --threads 1"

# shellcheck disable=SC2086 # a list of options
run worker "$cell" 0 0 0 -1 10 0 0 $options
expect_rc 0 "a worker"
expect_text out '"event":"step","step":2' "a worker"

# shellcheck disable=SC2086 # a list of options
run worker "$cell" 0 0 0 -1 10 2 0 $options
expect_rc 0 "a worker that trains the first steps"
expect_text out '"event":"step","step":1' "a worker that trains the first steps"
expect_no_text out '"event":"step","step":2' "a worker that trains the first steps"

# shellcheck disable=SC2086 # a list of options
run worker "$cell" 1 0 0 -1 10 0 0 $options
expect_text out "no cell 'mlp/O0/1/fp16/cpu/seed1' at place 1" "a worker of a cell at another place"

run worker "$cell" 0 0
expect_rc 2 "a worker without its arguments"
expect_text err "not by hand" "a worker without its arguments"
finish
