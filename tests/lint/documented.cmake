# Every function that a header of the product declares has a comment: above its paragraph (lines without an
# empty one between them), above itself, or behind itself. A function of one line that returns a formula needs
# none.
include(${CMAKE_CURRENT_LIST_DIR}/lib/lint.cmake)

# check_header(<root> <file>)
function(check_header root file)
  lint_checked()
  lint_lines(lines ${root}/${file})
  set(covered FALSE)
  set(pending "")
  set(number 0)
  foreach(line ${lines})
    math(EXPR number "${number} + 1")
    if(pending)
      # the rest of a declaration: its last line may carry the comment
      if(line MATCHES "/[*]|//")
        set(pending "")
      elseif(line MATCHES "([)],|{|}) *$")
        lint_violation("${file}:${pending}: no comment says what it does")
        set(pending "")
      endif()
      continue()
    endif()
    if(line MATCHES "^ *$")
      set(covered FALSE)
    elseif(line MATCHES "^(/[*]|//)")
      set(covered TRUE)
    elseif(NOT covered AND line MATCHES
      "^(AB_MUST_CHECK |static inline |extern |__device__ |__host__ )*[a-zA-Z_][A-Za-z0-9_ *]*[ \
*](ab_[a-z0-9_]+)[(]"
           AND NOT line MATCHES "^(typedef|return|#)" AND NOT line MATCHES "/[*]|//|{ return .*}")
      if(line MATCHES "([)],|{|}) *$") # a ; is a , here
        lint_violation("${file}:${number}: no comment says what it does")
      else()
        set(pending ${number})
      endif()
    endif()
  endforeach()
endfunction()

function(self_test)
  set(root ${BUILD}/lint/documented)
  file(WRITE ${root}/good.h
    "/* One. */\nint ab_one(int x);\nint ab_two(int x);\n\nint ab_three(void); /* three */\n\nint \
ab_four(int a,\n            int b); // four\n")
  check_header(${root} good.h)
  lint_self_test("documented functions" 0)
  file(WRITE ${root}/bad.h
    "/* One. */\nint ab_one(int x);\n\nint ab_two(int x);\nstatic inline int ab_three(void) {\n    return \
3;\n}\n\nint ab_four(int a,\n            int b);\n")
  check_header(${root} bad.h)
  lint_self_test("functions without a comment" 3)
endfunction()

self_test()
lint_files(headers ${SOURCE} *.h *.cuh)
list(FILTER headers EXCLUDE REGEX "^tests/")
foreach(header ${headers})
  check_header(${SOURCE} ${header})
endforeach()
lint_finish()
