# Every header of the rooms compiles alone, twice in a row, as C11 and as C++17 (CUDA sources will include
# them). Headers of vector instructions are left out: they belong to the C files that are compiled once for
# each CPU level.
include(${CMAKE_CURRENT_LIST_DIR}/lib/lint.cmake)

file(STRINGS ${BUILD}/CMakeCache.txt cached REGEX "^CMAKE_C_COMPILER:[A-Z]+=")
string(REGEX REPLACE "^[^=]*=" "" c_compiler "${cached}")
find_program(cxx_compiler NAMES g++ clang++ c++)

# -Wpedantic is for C alone: what compiles CUDA takes compound literals.
set(flags -fsyntax-only -Wall -Wextra -Werror -I${SOURCE} -I${BUILD}/generated)

# compile(<variable> <extension> <header> <compiler> <flags>...): the first error, or "".
function(compile variable extension header compiler)
  set(source ${BUILD}/lint/header.${extension})
  file(WRITE ${source} "#include \"${header}\"\n#include \"${header}\"\nextern int not_empty;\n")
  execute_process(COMMAND ${compiler} ${ARGN} ${source} RESULT_VARIABLE status ERROR_VARIABLE errors
    OUTPUT_QUIET)
  set(first "")
  if(NOT status EQUAL 0)
    string(REGEX MATCH "[^\n]*error[^\n]*" first "${errors}")
    string(REPLACE ";" "," first "failed: ${first}")
  endif()
  set(${variable} "${first}" PARENT_SCOPE)
endfunction()

function(check_header root header)
  lint_checked()
  compile(as_c c ${header} ${c_compiler} -std=c11 -Wpedantic ${flags} -I${root})
  if(as_c)
    lint_violation("${header}: as C11 ${as_c}")
  endif()
  compile(as_cxx cpp ${header} ${cxx_compiler} -std=c++17 ${flags} -I${root})
  if(as_cxx)
    lint_violation("${header}: as C++17 ${as_cxx}")
  endif()
endfunction()

function(self_test)
  set(root ${BUILD}/lint/headers)
  file(REMOVE_RECURSE ${root})
  file(WRITE ${root}/good.h
    "#ifndef GOOD_H\n#define GOOD_H\n#include <stddef.h>\nstruct good { size_t n; };\n#endif\n")
  check_header(${root} good.h)
  lint_self_test("a good header" 0)
  file(WRITE ${root}/alone.h "#ifndef ALONE_H\n#define ALONE_H\nstruct alone { size_t n; };\n#endif\n")
  check_header(${root} alone.h)
  lint_self_test("a header that needs another, in both languages" 2)
  file(WRITE ${root}/unguarded.h "struct unguarded { int n; };\n")
  check_header(${root} unguarded.h)
  lint_self_test("a header without a guard, in both languages" 2)
  file(WRITE ${root}/c_only.h "#ifndef C_ONLY_H\n#define C_ONLY_H\nvoid f(float *restrict p);\n#endif\n")
  check_header(${root} c_only.h)
  lint_self_test("a header that is no C++" 1)
endfunction()

if(NOT cxx_compiler)
  lint_skip("headers: no C++ compiler")
endif()
self_test()
lint_files(headers ${SOURCE} *.h)
list(FILTER headers EXCLUDE REGEX "^tests/")
foreach(header ${headers})
  file(STRINGS ${SOURCE}/${header} vectors REGEX "__AVX")
  if(NOT vectors)
    check_header(${SOURCE} ${header})
  endif()
endforeach()
lint_finish()
