# `ampbench report`: what it prints and writes, and its messages. Each part has its own shell and folder.
set -eu
fail() { echo "FAIL: $*" >&2; exit 1; }

# What a run writes follows the schema, and `ampbench report` prints the table that the run printed.
run_and_report() (
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
    cd "$out"

    run() { "$AMPBENCH" --data synthetic --net mlp --steps 8 --rounds 2 --probe-every 2 --threads 1 \
        --quiet "$@"; }

    run --levels O0,O2,O3 --scales default,128 --half fp16,bf16 --out full.json --csv run.csv \
        --markdown run.md \
        > run.txt
    run --levels O2 --no-floor --no-plots --probe-every 0 --rounds 1 --optimizer adam --out bare.json \
        > /dev/null
    run --levels O3 --scales 1e38 --no-plots --out overflow.json > /dev/null || true

    "$AMPBENCH" report full.json --csv report.csv --markdown report.md > report.txt
    cmp run.txt report.txt || fail "the report's table is not the run's"
    cmp run.csv report.csv || fail "the report's CSV is not the run's"
    cmp run.md report.md || fail "the report's Markdown is not the run's"
    "$AMPBENCH" report full.json --cells '*/O2/128/bf16/*' > some.txt
    grep -q '^O2 .* 128 ' some.txt || fail "--cells left out the cell that matches"
    grep -q '^O0 ' some.txt || fail "--cells left out O0"
    ! grep -q '^O3 ' some.txt || fail "--cells kept a cell that does not match"
    ! "$AMPBENCH" report full.json --cells O2 > some.txt 2> errors ||
        fail "--cells took a pattern of no cell"
    grep -q "report: --cells: expected a pattern" errors || fail "no message on a pattern of no cell"
    run --levels O0,O2 --scales '2^-16..2^14' --no-floor --rounds 1 --probe-every 8 --out sweep/sweep.json \
        --html sweep.html > run.txt
    "$AMPBENCH" report sweep/sweep.json > report.txt
    cmp run.txt report.txt || fail "the report's table of a sweep is not the run's"
    run --levels O0 --no-floor --rounds 1 --no-plots --label 'new <kernels>' --out label.json \
        --html label.html > label.txt
    grep -q '^label: new <kernels>$' label.txt || fail "the table does not say the label"
    grep -q 'new &lt;kernels&gt;' label.html || fail "the page does not say the label"
    "$AMPBENCH_BUILD/ampbench_schema_check" "$AMPBENCH_SOURCE/reports/schema/result-1.schema.json" \
        label.json || fail "a label is not in the schema"
    "$AMPBENCH" compare label.json label.json > compared.txt || true
    grep -q '^label.json: new <kernels>$' compared.txt || fail "the comparison does not say the label"
    "$AMPBENCH" report full.json label.json --plots over --html over.html > over.txt
    grep -q '^new <kernels>' over.txt || fail "no row of the run that is laid over"
    grep -q '^full.json .*O2 ' over.txt || fail "no row of the first run"
    grep -q 'several runs' over.html || fail "the page does not say that it shows several runs"
    grep -q 'O0, scale 1, .*new <kernels>' over/loss*.gp || fail "the other O0 is not among the loss curves"
    ! "$AMPBENCH" report full.json full.json > over.txt 2> errors || fail "a run was laid over itself"
    ! "$AMPBENCH" report full.json label.json --csv over.csv > over.txt 2> errors ||
        fail "two runs were written as CSV"
    grep -q 'report: --csv: expected one run' errors || fail "no message on two runs as CSV"
    [ "$(grep -o '"mlp/O0/[^"]*"' sweep/sweep.json | sort -u | wc -l)" = 1 ] || fail "O0 was trained twice"
    [ "$(grep -o '"mlp/O2/[^"]*"' sweep/sweep.json | sort -u | wc -l)" = 31 ] ||
        fail "not every scale of the range was trained"
    [ "$(grep -cv '[#?]' sweep/plots/sweep.dat)" -ge 1 ] || fail "no data of the sweep"
    grep -q 'report RESULT.json --cells' sweep.html || fail "the page does not say where single cells are"
    ! ls sweep/plots/loss*.png 2> /dev/null || fail "pictures of single cells of a sweep were drawn"
    for file in full bare overflow; do
        "$AMPBENCH" report $file.json --plots plots_$file > /dev/null || fail "$file.json cannot be reported"
        "$AMPBENCH_BUILD/ampbench_schema_check" "$AMPBENCH_SOURCE/reports/schema/result-1.schema.json" \
            $file.json ||
            fail "$file.json does not follow the schema"
    done
)

# `ampbench report`: the same table in three forms, on stdout and into files, in colour only when wanted.
tables() (
    result="$AMPBENCH_SOURCE/tests/fixtures/result_lenet5.json"
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
    cd "$out"

    "$AMPBENCH" report "$result" > table 2> errors
    [ -s errors ] && fail "messages: $(cat errors)"
    grep -q '^O3 .* void ' table || fail "no void ratio in the table"
    grep -q 'floor ±' table || fail "no noise floor in the table"
    "$AMPBENCH" report "$result" > again
    cmp table again || fail "two reports of one document differ"

    "$AMPBENCH" report --format csv "$result" > csv
    "$AMPBENCH" report --format=markdown "$result" > markdown
    "$AMPBENCH" report "$result" --csv file.csv --markdown file.md > with_files
    cmp csv file.csv || fail "--csv and --format csv differ"
    cmp markdown file.md || fail "--markdown and --format markdown differ"
    cmp table with_files || fail "--csv changed what goes to stdout"
    [ "$(grep -c $'\r$' csv)" = 8 ] || fail "the CSV does not have eight lines that end in CRLF"

    "$AMPBENCH" report --format html "$result" > html 2> errors
    "$AMPBENCH" report "$result" --html page.html --junit junit.xml > with_files 2>> errors
    cmp html page.html || fail "--html and --format html differ"
    cmp table with_files || fail "--html changed what goes to stdout"
    if command -v xmllint > /dev/null; then
        xmllint --noout page.html junit.xml || fail "the page or the tests are not well-formed"
    fi
    "$AMPBENCH" report --format github "$result" | grep -q '^::warning title=ampbench%3A lenet5/O3' ||
        fail "no annotation"
    mkdir elsewhere
    (cd elsewhere && TMPDIR=/tmp "$AMPBENCH" report "$result" --html page.html > /dev/null 2>&1)
    cmp html elsewhere/page.html || fail "the page depends on the folder"

    escapes() { grep -q $'\033' "$1"; }
    escapes table && fail "colour in a pipe"
    "$AMPBENCH" report "$result" --color always > colored
    escapes colored || fail "no colour with --color always"
    CLICOLOR_FORCE=1 "$AMPBENCH" report "$result" > colored
    escapes colored || fail "no colour with CLICOLOR_FORCE"
    NO_COLOR=1 CLICOLOR_FORCE=1 "$AMPBENCH" report "$result" > plain
    escapes plain && fail "colour in spite of NO_COLOR"
    CLICOLOR_FORCE=1 "$AMPBENCH" report "$result" --color never > plain
    escapes plain && fail "colour in spite of --color never"
    for kind in broken hostile tiny; do
        "$AMPBENCH" report "$AMPBENCH_SOURCE/tests/fixtures/result_$kind.json" > /dev/null || fail "$kind"
    done
    "$AMPBENCH" report --help | grep -q -- '--plots DIR' || fail "no help"
)

# `ampbench report --plots`: data and scripts always, pictures where gnuplot is, and the scripts work by hand.
plots() (
    result="$AMPBENCH_SOURCE/tests/fixtures/result_lenet5.json"
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
    cd "$out"

    PATH=/nonexistent "$AMPBENCH" report "$result" --plots bare > /dev/null 2> errors ||
        fail "a missing gnuplot is no error"
    grep -q 'gnuplot was not found' errors || fail "nothing said about the missing gnuplot"
    for plot in frontier gradients loss scale cost flush; do
        [ -s bare/$plot.dat ] && [ -s bare/$plot.gp ] || fail "$plot has no data or no script"
        [ ! -e bare/$plot.png ] || fail "$plot.png without gnuplot"
    done
    if ! command -v gnuplot > /dev/null; then
        echo "gnuplot is not here: pictures are not tested"
        exit 0
    fi
    "$AMPBENCH" report "$result" --plots deep/er/drawn > /dev/null 2> errors
    [ -s errors ] && fail "messages: $(cat errors)"
    for plot in frontier gradients loss scale cost flush; do
        [ "$(head -c 4 deep/er/drawn/$plot.png | tail -c 3)" = PNG ] || fail "$plot.png is no picture"
        cmp bare/$plot.dat deep/er/drawn/$plot.dat || fail "$plot.dat depends on gnuplot"
        (cd bare && gnuplot -d -e "format='svg'" $plot.gp) || fail "$plot.gp cannot be run by hand"
        grep -q '<svg' bare/$plot.svg || fail "$plot.svg is no picture"
    done
    "$AMPBENCH" report "$AMPBENCH_SOURCE/tests/fixtures/result_hostile.json" --plots hostile > /dev/null
    [ ! -e hostile/pwned ] && [ ! -e pwned ] && [ ! -e /tmp/pwned ] || fail "a string of the document was run"
)

# `ampbench report`: what is wrong is said in one line that names the file or option, with the exit status of
# its kind.
errors() (
    set +e
    result="$AMPBENCH_SOURCE/tests/fixtures/result_tiny.json"
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
    cd "$out"

    # expect STATUS TEXT ARGUMENT...
    expect() {
        local status=$1 text=$2
        shift 2
        "$AMPBENCH" report "$@" > stdout 2> stderr
        local found=$?
        [ $found = "$status" ] || fail "report $*: exit status $found instead of $status: $(cat stderr)"
        [ "$(wc -l < stderr)" = 1 ] || fail "report $*: not one line: $(cat stderr)"
        grep -qF -- "$text" stderr || fail "report $*: '$text' is not in: $(cat stderr)"
        [ -s stdout ] && [ "$status" != 0 ] && [ "${allow_output-}" = "" ] &&
            fail "report $*: output in spite of the error"
        return 0
    }

    expect 2 'expected a result document'
    expect 2 'missing.json: cannot open' missing.json
    expect 2 "did you mean '--format'" --formt csv "$result"
    expect 2 'did you mean csv' --format cvs "$result"
    expect 2 '--format expects a value' "$result" --format
    expect 2 'auto, always or never' --color blue "$result"
    expect 2 'expected another run than that of' "$result" "$result"

    head -c 2000 "$result" > cut.json
    expect 2 'cut.json: line' cut.json
    echo '{"schema": "ampbench-result", "schema_version": "3.0.0"}' > newer.json
    expect 6 'newer.json: schema_version: this program reads 1.x' newer.json
    echo '{"schema": "perfherder", "schema_version": "1.0.0"}' > other.json
    expect 6 'other.json: schema' other.json
    sed 's/"steps_applied": 6,/"steps_applied": "six",/' "$result" > typo.json
    expect 2 'cells[0].steps_applied: expected integer, found "six"' typo.json
    sed 's/"steps_applied": 6,/"steps_applied": 5,/' "$result" > sum.json
    expect 2 'cells[0]: steps_applied + steps_skipped is 5' sum.json

    allow_output=1
    expect 2 '--csv: no/such/file.csv: cannot write' --csv no/such/file.csv "$result"
    expect 2 '--markdown: no/such/file.md: cannot write' --markdown no/such/file.md "$result"
    # A page whose figures fail is not left half written, and an older one stays.
    echo old > page.html
    TMPDIR=$out/nowhere expect 2 '--html: ' --html page.html "$result"
    [ "$(cat page.html)" = old ] || fail "--html: a page that failed replaced the old one"
    TMPDIR=$out/nowhere expect 2 '--html: ' --html new.html "$result"
    [ ! -e new.html ] || fail "--html: a page that failed was left"
)

run_and_report
tables
plots
errors
