# ampbench_room(<name> SOURCES ... LINKS ...): one folder of the layout as one static library. LINKS names the rooms
# and libraries it may use; tests/layering.cmake checks the same rule on the #include lines.
function(ampbench_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;LINKS" ${ARGN})
  add_library(${name} STATIC ${ROOM_SOURCES})
  target_link_libraries(${name} PUBLIC ampbench_flags ${ROOM_LINKS})
endfunction()

# ampbench_def_names(<variable> <file.def> <MACRO> [2]): first (or second) arguments of the rows `MACRO(name, ...)` of a .def
# list, each once.
function(ampbench_def_names variable file macro)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  file(STRINGS ${file} rows REGEX "^${macro}\\(")
  set(skip "")
  if(ARGV3 EQUAL 2)
    set(skip "[a-zA-Z0-9_]+, *")
  endif()
  set(names "")
  foreach(row ${rows})
    string(REGEX REPLACE "^${macro}\\(${skip}([a-zA-Z0-9_]+).*" "\\1" name "${row}")
    list(APPEND names ${name})
  endforeach()
  list(REMOVE_DUPLICATES names)
  set(${variable} ${names} PARENT_SCOPE)
endfunction()

# ampbench_isa_variants(<room> <levels> <file.c> ...): compiles each file once per CPU level of kernels/isa.h, with
# AB_ISA_SUFFIX (plain, avx2, avx512, avx512bitalg) to name its one exported symbol. Only these objects may contain such
# instructions. Elsewhere than on x86-64 there is the plain level only.
function(ampbench_isa_variants room levels)
  set(flags_plain "")
  set(flags_avx2 -mavx2 -mf16c -mfma -mbmi -mbmi2 -mpopcnt)
  set(flags_avx512 ${flags_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
  set(flags_avx512bitalg ${flags_avx512} -mavx512vbmi -mavx512vbmi2 -mavx512bitalg -mavx512vpopcntdq -mgfni)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(levels plain)
  endif()
  list(GET ARGN 0 first)
  get_filename_component(stem ${first} NAME_WE)
  foreach(level ${levels})
    set(objects ${room}_${stem}_${level})
    add_library(${objects} OBJECT ${ARGN})
    target_link_libraries(${objects} PRIVATE ampbench_flags)
    target_compile_definitions(${objects} PRIVATE AB_ISA_SUFFIX=${level})
    target_compile_options(${objects} PRIVATE -O3 ${flags_${level}})
    target_sources(${room} PRIVATE $<TARGET_OBJECTS:${objects}>)
  endforeach()
endfunction()
