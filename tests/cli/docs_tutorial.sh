# The tutorial: its commands are run in order, as written, and end as it says ("# exit N"; else 0); lines it
# shows are shown.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"
cd "$work" || exit 1
page=$AMPBENCH_SOURCE/docs/tutorial.md
mkdir bin home
ln -s "$AMPBENCH" bin/ampbench
export PATH="$work/bin:$PATH"
awk '/^```sh$/ { on = 1; next } /^```$/ { on = 0 } on' "$page" >commands
while IFS= read -r line; do
    expected=0
    case $line in *"# exit "*) expected=${line##*# exit } ;; esac
    rc=0
    bash -c "$line" >>all 2>err || rc=$?
    expect_rc "$expected" "$line"
done <commands
[ "$(wc -l <commands)" -ge 8 ] || fail "the tutorial has only $(wc -l <commands) commands"
awk '/^```text$/ { on = 1; next } /^```$/ { on = 0 } on' "$page" >shown
while IFS= read -r line; do expect_text all "$line" "a line that the tutorial shows"; done <shown
[ -s well/report.html ] || fail "no page"
finish
