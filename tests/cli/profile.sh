# `ampbench profile`: the rows hold the operations that the plan counts, name what ran, and sum to the step;
# bad input is refused. `--profile` of a run: the same rows in the document, the same losses, and a roofline
# of the document's own numbers.
# shellcheck source=lib/cli.sh
. "$(dirname "$0")/lib/cli.sh"

common=(--net lenet5 --data synthetic --batch 16 --threads 1)

run profile "${common[@]}" --levels O0,O2 --steps 3 --verbose --out "$work/out.json"
expect_rc 0 "profile"
checks=$((checks + 1))
grep -q ampbench-profile-1 "$work/out.json" || fail "the file holds the document"
expect_text "$work/out" "profile of lenet5, batch 16" "profile"
expect_text "$work/out" "limits measured in this process, threads 1: matrix product fp32" "profile"
expect_text "$work/out" "optimizer" "profile"

# Attention computes two products forward, causal ones by half, and five backward; a linear layer one and two.
run profile --net gpt --data synthetic_text --batch 2 --threads 1 --levels O0,O1 --steps 2 --json -
expect_rc 0 "profile of gpt"
cp "$work/out" "$work/gpt.json"
checks=$((checks + 1))
python3 - "$work/gpt.json" <<'EOF' || fail "operations of gpt"
import json, sys
rows = json.load(open(sys.argv[1]))["cells"][0]["rows"]
for op, ratio in ("scaled_dot_product_attention", 5 / 2), ("linear", 2):
    forward, backward = (sum(row["flops"] for row in rows if (row["op"], row["pass"]) == (op, which))
                         for which in ("forward", "backward"))
    assert forward > 0 and backward == ratio * forward, (op, forward, backward)
EOF

# A batch norm that trains reads its input twice, and backward the gradient of its output, too.
run profile --net resnet8 --data synthetic_images --batch 4 --threads 1 --levels O0 --steps 2 --json -
expect_rc 0 "profile of resnet8"
checks=$((checks + 1))
python3 - "$work/out" <<'EOF' || fail "bytes that are read twice"
import json, sys
rows = json.load(open(sys.argv[1]))["cells"][0]["rows"]
for row in rows:
    if row["op"] != "batch_norm2d":
        assert "bytes_read_twice" not in row and "limit_read_twice_ns" not in row, row
        continue
    share = row["bytes_read_twice"] / row["bytes"]
    assert 0.3 < share < 0.7, row
    # the bytes may come from another distance than the average of all
    assert row["limit"] == "memory" and 1 < row["limit_read_twice_ns"] / row["limit_ns"] < 2, row
assert sum(row["op"] == "batch_norm2d" for row in rows) == 18
EOF

# At O1 gelu and additions read and write halves past the casts beside them, which do not run.
checks=$((checks + 1))
python3 - "$work/gpt.json" <<'EOF' || fail "bytes of ops that pass casts by"
import json, sys
full, mixed = ({(row["layer"], row["op"], row["pass"]): row["bytes"] for row in cell["rows"]}
               for cell in json.load(open(sys.argv[1]))["cells"])
for which in "forward", "backward":
    gelu = ("h0.mlp.gelu", "gelu", which)
    assert mixed[gelu] * 2 == full[gelu] > 0, (gelu, mixed[gelu], full[gelu])
    assert not mixed.get(("h0.mlp.fc2", "cast", which)), which
add = ("h0.add1", "add", "forward")
assert 0 < mixed[add] < full[add], (add, mixed[add], full[add])
assert full[("h0.add1", "add", "backward")] == 0, "gradients are passed on where they lie"
EOF

run profile "${common[@]}" --levels O0,O1,O2 --steps 3 --json -
expect_rc 0 "profile as JSON"
cp "$work/out" "$work/profile.json"
run plan "${common[@]}" --levels O0
gflop=$(sed -n 's/.*; \([0-9.e-]*\) GFLOP a step.*/\1/p' "$work/out")
checks=$((checks + 1))
python3 - "$work/profile.json" "$gflop" <<'EOF' || fail "the document"
import json, sys
document, gflop = json.load(open(sys.argv[1])), float(sys.argv[2])
assert document["format"] == "ampbench-profile-1"
assert document["limits"]["product_flops_per_s"]["fp32"] > 0
assert all(document["limits"]["function_values_per_s"][f] > 0 for f in ("exp", "tanh", "erf", "look-up"))
for way in "copy", "read", "update":
    sizes = [item["working_set_bytes"] for item in document["limits"][way]]
    assert sizes == [65536 << i for i in range(13)], sizes
    assert all(item["bytes_per_s"] > 0 for item in document["limits"][way]), way
levels = [cell["level"] for cell in document["cells"]]
update = {}
assert levels == ["O0", "O1", "O2"], levels
for cell in document["cells"]:
    rows = cell["rows"]
    assert abs(sum(row["flops"] for row in rows) * 1e-9 / gflop - 1) < 1e-3, (cell["id"], gflop)
    assert abs(sum(row["time_ns"] for row in rows) / cell["parts_time_ns"] - 1) < 1e-9
    times = [row["time_ns"] for row in rows]
    assert times == sorted(times, reverse=True)
    passes = {(row["layer"], row["pass"]) for row in rows if row["op"] == "conv2d"}
    assert passes == {(layer, p) for layer in ("conv1", "conv2") for p in ("forward", "backward")}, passes
    assert all("implementation" in row for row in rows if row["op"] == "conv2d")
    assert cell["nonfinite_losses"] == 0
    # samples of the first steps are counted, apart from what every step costs
    assert [row["op"] for row in rows if row["kind"] == "statistics"] == ["data statistics"]
    # O1's update widens the half gradients itself: no cast of them is claimed, and fewer bytes are read
    assert cell["level"] != "O1" or not any(row["pass"] == "sums" for row in rows), rows
    update[cell["level"]] = next(row["bytes"] for row in rows if row["op"] == "optimizer")
    casts = sum(row["kind"] == "cast" for row in rows)
    assert (casts > 1) == (cell["level"] != "O0"), (cell["id"], casts)
weights = 61706  # of lenet5
assert update["O0"] - update["O1"] == 2 * weights, update
EOF

# once samples are not counted any more, the batch is written in half: its cast does not run
run profile "${common[@]}" --levels O1 --steps 600 --json -
expect_rc 0 "profile of 600 steps"
checks=$((checks + 1))
python3 - "$work/profile.json" "$work/out" <<'EOF' || fail "the cast of the batch in 3 and 600 steps"
import json, sys
for path, runs in (sys.argv[1], True), (sys.argv[2], False):
    cell = next(cell for cell in json.load(open(path))["cells"] if cell["level"] == "O1")
    cast = sum(row["bytes"] for row in cell["rows"] if (row["layer"], row["op"]) == ("conv1", "cast"))
    assert (cast > 0) == runs, cast
EOF

# a training that diverges is not compared
run profile "${common[@]}" --levels O0,O2 --lr 1e9 --steps 4
expect_rc 0 "profile of a training that diverges"
expect_text "$work/out" "4 of 4 losses are NaN or inf" "profile of a training that diverges"
expect_text "$work/out" " void " "profile of a training that diverges"

run profile "${common[@]}" --steps 0
expect_rc 2 "no steps"
expect_text "$work/err" "--steps" "no steps"
run profile "${common[@]}" --json file.json
expect_rc 2 "--json is not a file"
expect_text "$work/err" "--json: expected -" "--json is not a file"
run profile "${common[@]}" --stepz 3
expect_rc 2 "an unknown option"
expect_text "$work/err" "--steps" "an unknown option"

# in a run
training=("${common[@]}" --levels O0,O2 --steps 24 --rounds 1 --eval-limit 16 --quiet)
run run "${training[@]}" --no-plots --out "$work/plain/result.json"
expect_rc 0 "a run without --profile"
run run "${training[@]}" --profile --out "$work/timed/result.json" --html "$work/timed/page.html"
expect_rc 0 "a run with --profile"
checks=$((checks + 1))
"$AMPBENCH_BUILD/ampbench_schema_check" "$AMPBENCH_SOURCE/reports/schema/result-1.schema.json" \
    "$work/timed/result.json" >"$work/out" 2>&1 || fail "the document with a profile follows the schema"
checks=$((checks + 1))
python3 - "$work" "$gflop" <<'EOF' || fail "the profile of a run"
import json, os, sys
work, gflop = sys.argv[1], float(sys.argv[2])
plain, timed = (json.load(open(f"{work}/{name}/result.json")) for name in ("plain", "timed"))
assert "machine_limits" not in plain and not any("profile" in cell for cell in plain["cells"])
digests = [[cell["loss_digest"] for cell in document["cells"]] for document in (plain, timed)]
assert digests[0] == digests[1]
limits = timed["machine_limits"]
assert limits["product_flops_per_s"]["fp32"] > 0
assert all(len(limits[way]) == 13 for way in ("copy", "read", "update"))
cells = [cell for cell in timed["cells"] if "profile" in cell]
assert [cell["level"] for cell in cells] == ["O0", "O2"], "floors are not profiled"
blocks = open(f"{work}/timed/plots/roofline.dat").read().split("\n\n\n")
for i, cell in enumerate(cells):
    profile = cell["profile"]
    rows, step = profile["rows"], profile["parts_time_ns"]
    assert 1 <= profile["steps"] <= 19, profile["steps"]
    assert abs(sum(row["flops"] for row in rows) * 1e-9 / gflop - 1) < 1e-3
    assert abs(sum(row["time_ns"] for row in rows) / step - 1) < 1e-9
    for panel in (0, 1):
        expected = [(row["flops"] / row["bytes"], row["flops"] / row["time_ns"]) if panel == 0
                    else (row["bytes"], row["bytes"] / row["time_ns"]) for row in rows
                    if ("product_format" in row) == (panel == 0) and row["bytes"] > 0
                    and row["time_ns"] >= 0.004 * step]
        points = [[float(x) for x in line.split()] for line in blocks[2 + 2 * i + panel].splitlines()]
        assert len(points) == len(expected), (cell["id"], panel, len(points), len(expected))
        for point, (x, y) in zip(points, expected):
            assert abs(point[0] / x - 1) < 1e-6 and abs(point[1] / y - 1) < 1e-6
if os.path.exists(f"{work}/timed/plots/roofline.png"):
    assert ">Roofline<" in open(f"{work}/timed/page.html").read()
EOF
finish
