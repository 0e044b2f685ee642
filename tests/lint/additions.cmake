# One addition = one new file + one line. In a scratch copy of the tree an op (CPU and CUDA), a format, a
# probe, a data source, a tensor reader, a loss scaler, an optimizer, a report and a cause are added as a
# newcomer would: tests/additions/<kind> is the one file, the row below the one line. The copy is built, and
# each addition is found and used through the program. Nothing else of the tree may need a change.
include(${CMAKE_CURRENT_LIST_DIR}/lib/lint.cmake)
set(root ${BUILD}/lint/additions)
set(program ${root}/build/ampbench)

# add(<kind> <file or ""> <list.def> <row>): one new file, one line.
function(add kind file list row)
  lint_checked()
  if(file)
    get_filename_component(suffix ${file} LAST_EXT)
    configure_file(${SOURCE}/tests/additions/${kind}${suffix} ${root}/tree/${file} COPYONLY)
  endif()
  file(READ ${root}/tree/${list} text)
  file(WRITE ${root}/tree/${list} "${text}${row}\n")
  set(newer ${SOURCE}/${list})
  if(${CMAKE_CURRENT_LIST_FILE} IS_NEWER_THAN ${newer})
    set(newer ${CMAKE_CURRENT_LIST_FILE})
  endif()
  execute_process(COMMAND touch -r ${newer} ${root}/tree/${list})
endfunction()

function(run_step what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said
    WORKING_DIRECTORY ${root})
  if(failed)
    message(FATAL_ERROR "${what}: ${failed}\n${said}")
  endif()
endfunction()

# expect(<kind> <regex> <arguments of the program>...)
function(expect kind regex)
  execute_process(COMMAND ${program} ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE errors
    WORKING_DIRECTORY ${root})
  if(failed OR NOT said MATCHES "${regex}")
    string(REPLACE ";" " " command "${ARGN}")
    lint_violation("${kind}: `ampbench ${command}` ended with ${failed}, expected ${regex} in: \
${said}${errors}")
  endif()
endfunction()

# A copy of the sources. Files keep their times, lists with an added row those of the list or of this file, so
# that a second run compiles what changed.
function(copy_tree)
  foreach(folder kernels probes reports bench plots cmake include python)
    file(COPY ${SOURCE}/${folder} DESTINATION ${root}/tree PATTERN corpus EXCLUDE)
  endforeach()
  file(COPY ${SOURCE}/CMakeLists.txt ${SOURCE}/README.md ${SOURCE}/CHANGELOG.md DESTINATION ${root}/tree)
  file(GLOB texts ${SOURCE}/LICENSE ${SOURCE}/docs)
  file(COPY ${texts} DESTINATION ${root}/tree)
endfunction()

file(REMOVE_RECURSE ${root}/tree)
copy_tree()
add(op kernels/ops/elementwise/added_op.c kernels/ops/ops.def "AB_OP(added_op, follow, no_trait)")
add(op kernels/ops/elementwise/added_op.cu kernels/cuda/cuda_ops.def "AB_CUDA_OP(added_op, \"\")")
add(format "" kernels/format/formats.def "AB_FORMAT(added_format, 12, 6, -14, 15, 1, 1, 0, \"twelve bits\")")
add(probe probes/added_probe.c probes/probes.def "AB_PROBE(added_probe)")
add(data_source bench/data/added_data.c bench/data/data.def "AB_DATA(added_data)")
add(tensor_reader bench/tensorfile/added_reader.c bench/tensorfile/readers.def
  "AB_TENSOR_READER(added_reader)")
add(scaler bench/amp/scaler/scaler_added_scaler.c bench/amp/scaler/scalers.def "AB_SCALER(added_scaler)")
add(optimizer bench/train/optim/optim_added.c bench/train/optim/optimizers.def
  "AB_OPTIMIZER(added_optimizer)")
add(report reports/render/report_added_report.c reports/render/reports.def "AB_REPORT(added_report)")
add(cause reports/diagnose/attribute/causes/added_cause.c reports/diagnose/attribute/verdicts.def
  "AB_VERDICT(added_cause)")

# Nothing is optimised, not even vector code; at -O0 gcc's own macros for it convert implicitly.
set(options -S tree -B build -DCMAKE_BUILD_TYPE=Debug -DAMPBENCH_TESTS=OFF -DAMPBENCH_CUDA=OFF
  -DAMPBENCH_MPI=OFF "-DCMAKE_C_FLAGS_DEBUG=-O0 -g0" "-DAMPBENCH_VECTOR_FLAGS=-O0 -Wno-sign-conversion")
run_step("configuring the copy" ${CMAKE_COMMAND} ${options})
run_step("building the copy" ${CMAKE_COMMAND} --build build --parallel 2 --target ampbench)

file(WRITE ${root}/net.json "{\"format\": \"ampbench-net-1\", \"name\": \"added\",
  \"input\": {\"height\": 28, \"width\": 28, \"channels\": 1}, \"ops\": [
  {\"name\": \"flat\", \"op\": \"flatten\"}, {\"name\": \"twice\", \"op\": \"added_op\"},
  {\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 10}, {\"name\": \"loss\", \"op\": \
\"cross_entropy\"}]}\n")
expect(op "added_op" list ops)
expect(format "added_format" list formats)
expect(scaler "added_scaler" list scalers)
expect(run "" run --net net.json --data added_data --levels O0,O2 --scales added_scaler --optimizer
  added_optimizer
       --probes added_probe --probe-every 1 --steps 3 --batch 16 --rounds 1 --no-floor --no-plots --quiet
         --out out.json)
expect(report "added/O2/" report out.json --format added_report)
set(document "")
if(EXISTS ${root}/out.json)
  file(READ ${root}/out.json document)
endif()
foreach(found "\"added_probe\": *[1-9]" "\"added_optimizer\"" "added_data" "added_scaler")
  if(NOT document MATCHES "${found}")
    lint_violation("the record of a run lacks ${found}")
  endif()
endforeach()
file(WRITE ${root}/tensor.added "ADDED:::0123456789abcdef")
expect(tensor_reader "4 values" inspect tensor.added)
execute_process(COMMAND strings -a ${program} COMMAND grep -c added_cause OUTPUT_VARIABLE causes)
if(NOT causes GREATER 0)
  lint_violation("cause: not in the program")
endif()

# The CUDA file: named by the build, and compiled alone, where nvcc is.
find_program(nvcc nvcc HINTS /usr/local/cuda/bin)
if(nvcc)
  run_step("configuring with CUDA" ${CMAKE_COMMAND} -S tree -B cuda -DCMAKE_BUILD_TYPE=Debug
    -DAMPBENCH_TESTS=OFF -DAMPBENCH_CUDA=ON
           -DAMPBENCH_CUDA_ARCHS=90-real -G "Unix Makefiles")
  run_step("compiling the CUDA file" ${CMAKE_COMMAND} -E chdir cuda/kernels make -s
    ops/elementwise/added_op.cu.o)
endif()
lint_finish()
