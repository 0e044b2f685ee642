# --launch: the cells of a run on several machines give the losses of the same run on one; hosts that cannot
# be reached, are of another build or are lost in the middle are said, and their cells run elsewhere; speeds
# of two classes of machine are not compared; an interrupted sweep leaves nothing running. ssh, sbatch, srun
# and scancel are stand-ins in a folder of their own; no cluster is met here.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
mkdir -p "$work/bin" "$work/it's a folder"
cd "$work/it's a folder" || exit 1
export STANDIN=$work
cat >"$work/bin/ssh" <<'END'
#!/bin/bash
# runs the command here: in a shell of its own, from another folder, as sshd does
host=${*: -2:1} command=${*: -1}
printf '%s\n' "$host" >>"$STANDIN/calls"
cd /
case $host in
gone) echo "ssh: connect to host gone port 22: Connection refused" >&2 && exit 255 ;;
lost) sh -c "$command" | head -n 2 && exit 255 ;;
held) # says no more than its machine and one record, and stands still until the test goes on; its other
    # records are more than a pipe holds, so it cannot end before
    sh -c "echo \$\$ >'$STANDIN/held'; $command" | {
        for _ in 1 2; do IFS= read -r line && printf '%s\n' "$line"; done
        kill -STOP "$(cat "$STANDIN/held")"
        touch "$STANDIN/stands"
        until [ -e "$STANDIN/released" ]; do sleep 0.1; done
        kill -CONT "$(cat "$STANDIN/held")" 2>/dev/null
    }
    exit "${PIPESTATUS[0]}" ;;
noisy) echo "Welcome to noisy." ;;
esac
exec sh -c "$command"
END
cat >"$work/bin/sbatch" <<'END'
#!/bin/bash
# runs the tasks of the array here; STANDIN_LOSES: this task of the first submission ends without a word
[ "$1 $2" = "--parsable --wait" ] || exit 9
echo "4711;cluster"
echo x >>"$STANDIN/submitted"
last=$(sed -n 's/^#SBATCH --array=0-//p' "$3")
worst=0
for k in $(seq 0 "$last"); do
    [ "$(wc -l <"$STANDIN/submitted") $k" = "1 ${STANDIN_LOSES:-}" ] && worst=1 && continue
    SLURM_ARRAY_TASK_ID=$k SLURMD_NODENAME=node$k bash "$3" || worst=$?
done
exit $worst
END
printf '#!/bin/bash\nshift && exec "$@"\n' >"$work/bin/srun"
printf '#!/bin/bash\necho "$@" >>"$STANDIN/cancelled"\n' >"$work/bin/scancel"
# another build: says another digest of itself
cat >"$work/other build" <<'END'
#!/bin/bash
exec "$AMPBENCH" part "$2" "0000000000000000:${3#*:}" "${@:4}"
END
chmod +x "$work/bin/"* "$work/other build"
export AMPBENCH PATH=$work/bin:$PATH
cp "$AMPBENCH_SOURCE/bench/nets/mlp.json" "my \$net's.json"
common=(--levels O0,O2 --scales default,128 --net "my \$net's.json" --data synthetic --batch 4 --steps 3
    --rounds 2 --seeds 2 --eval-limit 4 --quiet --no-plots)
cells=10

run "${common[@]}" --out local.json
expect_rc 0 "the run on one machine"
# same WHAT: sweep.json has the losses of local.json, and each cell a machine
same() {
    checks=$((checks + 1))
    [ "$(digests sweep.json)" = "$(digests local.json)" ] || fail "$1: other losses: $(digests sweep.json)"
    checks=$((checks + 1))
    "$AMPBENCH" report sweep.json --csv sweep.csv >/dev/null
    [ "$(csv_columns sweep.csv machine | grep -c '^[0-9]')" = $cells ] || fail "$1: a cell without a machine"
    follows_schema sweep.json "$1"
}

# Two classes of machine, a host that greets and one that cannot be reached.
printf '# machines\nnoisy slots=2\n\ngone   slots=1\nplain # the last\n' >hosts
run "${common[@]}" --launch ssh:hosts --out sweep.json
expect_rc 0 "a sweep by ssh"
expect_text "$work/err" "gone: ended with status 255: ssh: connect to host gone port 22: Connection refused" \
    "a host that cannot be reached"
[ "$(grep -c gone "$work/calls")" = 1 ] || fail "a host that cannot be reached was tried again"
expect_text sweep.json "its cells are run again, elsewhere" "the record of a sweep"
same "a sweep by ssh"
# The processors are shared by the parts of a host, so its class is another one where there are several.
if [ "$(nproc)" -gt 1 ]; then
    expect_text "$work/out" "cells ran on 2 machines of 2 classes; speeds are compared within a class only" \
        "the table"
    printf 'noisy slots=2\nplain\n' >two
    run "${common[@]}" --threads 1 --launch ssh:two --out sweep.json
    expect_no_text "$work/out" "classes" "the table of machines of one class"
fi

# A host that is lost in the middle, and one of another build.
printf "lost\nodd ampbench=$work/other%sbuild\nplain\n" _ >hosts
ln -s "other build" "$work/other_build"
run "${common[@]}" --launch ssh:hosts --out sweep.json
expect_rc 0 "a sweep that loses a host"
expect_text "$work/err" "odd: another build of ampbench" "a host of another build"
expect_text "$work/err" "lost: ended with status 255; its cells are run again" "a host that is lost"
same "a sweep that loses a host"
printf 'gone\n' >hosts
run "${common[@]}" --launch ssh:hosts --out none.json
expect_rc 1 "no host at all"
expect_text "$work/err" "no host is left, $cells cells are not done; the last one: gone" "no host at all"

# of_mark: the processes of a run with that mark
of_mark() { grep -lzx "MARK=$work" /proc/[0-9]*/environ 2>/dev/null | grep -v "/$$/" | cut -d / -f 3; }
# gone WHAT: until none is left
gone() {
    for _ in $(seq 600); do
        [ -z "$(of_mark)" ] && break
        sleep 0.1
    done
    checks=$((checks + 1))
    [ -z "$(of_mark)" ] || fail "$1 left processes"
}
# recorded: until the document has a process's result
recorded() {
    until [ -e "$work/stands" ] && grep -qs '"loss_digest"' killed.json killed.json.journal; do
        kill -0 "$parent" 2>/dev/null || return
        sleep 0.05
    done
}
# begin ARGS...: a sweep whose processes live long enough to be killed, in the background
begin() {
    rm -f "$work/released" "$work/stands"
    MARK=$work setsid "$AMPBENCH" "${long[@]}" --launch ssh:hosts --out killed.json \
        >"$work/out" 2>"$work/err" </dev/null &
    parent=$!
}
long=(--levels O0,O2 --net mlp --data synthetic --batch 4 --steps 100 --rounds 1 --seeds 24 --eval-limit 4
    --quiet --no-plots --no-floor --probe-every 0 --threads 1)
run "${long[@]}" --out undisturbed.json
# as_undisturbed WHAT
as_undisturbed() {
    expect_rc 0 "$1"
    checks=$((checks + 1))
    [ "$(digests killed.json)" = "$(digests undisturbed.json)" ] ||
        fail "$1: other losses: $(digests killed.json)"
    follows_schema killed.json "$1"
}

# The program on a machine is killed.
printf 'held\nplain\n' >hosts
begin
recorded
kill -9 "$(cat "$work/held")"
touch "$work/released"
wait $parent
rc=$?
as_undisturbed "a sweep whose part was killed"
expect_text "$work/err" "held: ended with status 137; its cells are run again" "a part that was killed"

# The process that records is killed: nothing goes on, and another one finishes what is missing.
printf 'held\n' >hosts
rm killed.json
begin
recorded
kill -9 $parent
wait $parent 2>/dev/null
touch "$work/released"
gone "a sweep whose first process was killed"
cat killed.json killed.json.journal >"$work/begun" 2>/dev/null
kept=$(grep -o '"max_rss_bytes": *[0-9]*' "$work/begun" | tr -d ' ' | head -n 1)
cp killed.json "$work/killed.json"
[ ! -e killed.json.journal ] || cp killed.json.journal "$work/killed.json.journal"
printf 'plain\n' >hosts
run run --resume --launch ssh:hosts --out killed.json --quiet --no-plots
as_undisturbed "a sweep that goes on after a kill"
checks=$((checks + 1))
[ -n "$kept" ] && tr -d ' ' <killed.json | grep -qF "$kept" || fail "a cell that was done was run again"

# Interrupted: nothing goes on, what is done is kept, and another run finishes it.
printf 'a\nb\n' >hosts
MARK=$work setsid "$AMPBENCH" "${common[@]}" --steps 30000 --rounds 1 --launch ssh:hosts --out sweep.json \
    >"$work/out" 2>"$work/err" </dev/null &
parent=$!
for _ in $(seq 600); do
    [ "$(of_mark | wc -l)" -ge 5 ] && break
    sleep 0.1
done
kill -INT $parent
wait $parent
rc=$?
expect_rc 130 "an interrupted sweep"
gone "an interrupted sweep"
follows_schema sweep.json "an interrupted sweep"
run run --resume --out sweep.json --quiet
expect_rc 6 "a sweep that is resumed on one machine"
expect_text "$work/err" "was begun with --launch" "a sweep that is resumed on one machine"

# Slurm: the script alone; then a job array with a task that is lost; nothing stays behind.
run "${common[@]}" --launch slurm:3:script --out sweep.json
expect_rc 0 "slurm:script"
expect_text "$work/out" "#SBATCH --array=0-2" "slurm:script"
expect_text "$work/out" "exec srun --ntasks=1" "slurm:script"
bash -n "sweep.json.launch/1/job.sh" || fail "the script is not one of bash"
[ ! -e "$work/submitted" ] || fail "slurm:script submitted something"
# the user submits it; the program reads what it wrote
sbatch --parsable --wait sweep.json.launch/1/job.sh >"$work/out" || fail "the job of slurm:script fails"
run run --resume --launch slurm --out sweep.json --quiet --no-plots
expect_rc 0 "a sweep whose script was submitted by hand"
[ "$(wc -l <"$work/submitted")" = 1 ] || fail "cells that were done were submitted again"
same "a sweep whose script was submitted by hand"
rm "$work/submitted"
STANDIN_LOSES=1 run "${common[@]}" --launch slurm:3 --out sweep.json
expect_rc 0 "a sweep by Slurm that loses a task"
expect_text "$work/err" "task 1: ended with status 1; its cells are run again" \
    "a sweep by Slurm that loses a task"
[ "$(wc -l <"$work/submitted")" = 2 ] || fail "the lost task was not submitted again"
same "a sweep by Slurm that loses a task"
[ ! -e sweep.json.launch ] || fail "a finished sweep left its folder"
expect_text sweep.json '"name": "node' "the record of a sweep by Slurm"

# MPI, where it is installed.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
for library in openmpi mpich; do
    command -v mpirun.$library >/dev/null && [ -e "$AMPBENCH_BUILD/libampbench_mpi_$library.so" ] || continue
    over=()
    [ $library = mpich ] || over=(--oversubscribe)
    timeout 120 mpirun.$library "${over[@]}" -n 3 "$AMPBENCH" "${common[@]}" --launch mpi --out sweep.json \
        >"$work/out" 2>"$work/err" </dev/null
    rc=$?
    expect_rc 0 "a sweep by $library"
    same "a sweep by $library"
    cp "$work/killed.json"* .
    timeout 120 mpirun.$library "${over[@]}" -n 3 "$AMPBENCH" run --resume --launch mpi --out killed.json \
        --quiet --no-plots >"$work/out" 2>"$work/err" </dev/null
    rc=$?
    as_undisturbed "a sweep that goes on by $library after a kill"
done

# refused RC TEXT ARGS...
refused() {
    local status=$1 text=$2
    shift 2
    run "${common[@]}" --out none2.json "$@"
    expect_rc "$status" "$*"
    expect_text "$work/err" "$text" "$*"
    [ "$(wc -l <"$work/err")" = 1 ] || fail "$*: not one line on stderr: $(head -c 800 "$work/err")"
}
refused 2 "did you mean 'slurm'" --launch slurn
refused 2 "expected ssh:HOSTFILE" --launch ssh
refused 2 "--launch ssh: missing: No such file" --launch ssh:missing
printf 'a slot=2\n' >bad
refused 2 "bad:1: expected slots, dir or ampbench, found 'slot'; did you mean 'slots'" --launch ssh:bad
printf '\na slots=0\n' >bad
refused 2 "bad:2: slots: expected an integer from 1 to" --launch ssh:bad
printf -- '-oProxyCommand=x\n' >bad
refused 2 "expected a host, found '-oProxyCommand=x'" --launch ssh:bad
: >bad
refused 2 "bad names no host" --launch ssh:bad
refused 2 "with 1 to 1000 tasks, found '0'" --launch slurm:0
refused 2 "--launch mpi: this is no process of an MPI job" --launch mpi
refused 2 "--checkpoint-every would leave files" --launch ssh:hosts --checkpoint-every 1
refused 2 "cells or ranks" --launch mpi --ranks mpi
rm "$work/bin/sbatch"
refused 1 "cannot run sbatch: No such file" --launch slurm
finish
