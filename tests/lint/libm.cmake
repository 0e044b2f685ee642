# No function of the C library's libm whose bits its version or the CPU chooses may reach a loss: kernels, and
# the folders of bench that make weights, batches, steps, rates and scales, take them from
# kernels/core/elementary.h and elementary64.h. Functions that IEEE 754 defines to the last bit (sqrt, fabs,
# floor, ceil, trunc, rint, fmod, fma, ldexp, frexp, scalbn, copysign, fmin, fmax, ...) may be called
# anywhere.
include(${CMAKE_CURRENT_LIST_DIR}/lib/lint.cmake)

set(folders kernels bench/amp bench/data bench/nets bench/train)

# Statistics that are shown and never read by a step.
set(excepted bench/amp/trace/scale_trace.c)

string(CONCAT functions
  "exp|exp2|exp10|expm1|log|log2|log10|log1p|logb|pow|cbrt|hypot|sin|cos|tan|sincos|asin|acos|atan|"
  "atan2|sinpi|cospi|sinh|cosh|tanh|asinh|acosh|atanh|erf|erfc|tgamma|lgamma|rsqrt|rcbrt|normcdf|"
  "erfcx|erfinv|cexp|clog|cpow")

# check_file(<root> <file>): one violation for each place outside comments and strings where one of them is
# called or named as a value, for instance in a table of functions. So nothing else may have such a name.
function(check_file root file)
  lint_checked()
  file(READ ${root}/${file} text)
  string(REGEX REPLACE "\"([^\"\n\\\\]|\\\\.)*\"" "\"\"" text "${text}")
  string(REGEX REPLACE "/\\*([^*]|\\*+[^*/])*\\*+/" "" text "${text}")
  string(REGEX REPLACE "//[^\n]*" "" text "${text}")
  string(REPLACE ";" "," text "${text}")
  string(REGEX MATCHALL "[^A-Za-z0-9_.>](__builtin_|__)?(${functions}|j0|j1|jn|y0|y1|yn)[fl]?[ \t]*\\(" calls
    " ${text}")
  string(REGEX MATCHALL "[=(,{?:][ \t\n]*(${functions})[fl]?[ \t\n]*[,)}?:]" values "${text}")
  foreach(found ${calls} ${values})
    string(REGEX MATCH "[A-Za-z_][A-Za-z0-9_]*" name "${found}")
    lint_violation("${file}: ${name} is libm's, whose bits differ between machines: use \
kernels/core/elementary.h or elementary64.h")
  endforeach()
endfunction()

function(check_tree root)
  foreach(folder ${folders})
    file(GLOB_RECURSE files RELATIVE ${root} ${root}/${folder}/*.c ${root}/${folder}/*.h
      ${root}/${folder}/*.cu
         ${root}/${folder}/*.cuh)
    list(REMOVE_ITEM files ${excepted})
    foreach(file ${files})
      check_file(${root} ${file})
    endforeach()
  endforeach()
endfunction()

function(plant root file text)
  file(WRITE ${root}/${file} "/* planted: exp(x) */\n${text}\n")
endfunction()

function(self_test)
  set(root ${BUILD}/lint/libm)
  file(REMOVE_RECURSE ${root})
  plant(${root} kernels/good.c
    "float f(float x) { return ab_expf(x) + sqrtf(x) + fmodf(x, 2) + p->log(x); } // log(x)\n/* pow(x,\n y) \
*/")
  plant(${root} bench/train/good.c
    "const char *t = \"cos(x) \\\" exp(x)\"; static double ab_log_of(double); int exp_map, y = x.exp;")
  plant(${root} bench/amp/trace/scale_trace.c "double f(double x) { return log2(x); }")
  plant(${root} reports/good.c "double f(double x) { return log2(x); }")
  check_tree(${root})
  lint_self_test("own and exact functions" 0)
  plant(${root} kernels/bad.cu "float f(float x) { return expf(x) * __logf (x); }")
  plant(${root} kernels/core/bad.c
    "double f(double x) { return x*log(x); }\nfloat g(float x) { return __builtin_tanhf(x); }")
  plant(${root} bench/train/bad.h "static inline double f(double x) { return 1.0-pow(x, 2); }")
  plant(${root} bench/nets/bad.c
    "static double (*f)(double) = cos;\nstatic const row rows[] = {{\"t\", tanh}, {\"s\", sin, 1}};")
  check_tree(${root})
  lint_self_test("libm's functions" 8)
endfunction()

self_test()
check_tree(${SOURCE})
lint_finish()
