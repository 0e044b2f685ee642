# ampbench_sources(<variable> <glob>... [EXCEPT <regex>...]): the files below this folder that match, found by
# name, so that a new file needs no line in CMake. Folders with a CMakeLists.txt of their own are not entered.
function(ampbench_sources variable)
  cmake_parse_arguments(FIND "" "" "EXCEPT" ${ARGN})
  set(patterns "")
  foreach(glob ${FIND_UNPARSED_ARGUMENTS})
    list(APPEND patterns ${CMAKE_CURRENT_SOURCE_DIR}/${glob})
  endforeach()
  file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${patterns})
  file(GLOB_RECURSE others RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/*/CMakeLists.txt)
  foreach(other ${others})
    get_filename_component(folder ${other} DIRECTORY)
    list(FILTER files EXCLUDE REGEX "^${folder}/")
  endforeach()
  foreach(regex ${FIND_EXCEPT})
    list(FILTER files EXCLUDE REGEX ${regex})
  endforeach()
  list(SORT files)
  set(${variable} ${files} PARENT_SCOPE)
endfunction()

# ampbench_room(<name> SOURCES ... LINKS ...): one top folder of the layout as one static library. LINKS names
# the libraries it may use. Which sub-folder may include which is stated in rooms.txt and checked by
# tests/lint/layering.cmake.
function(ampbench_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;LINKS" ${ARGN})
  add_library(${name} STATIC ${ROOM_SOURCES})
  target_link_libraries(${name} PUBLIC ampbench_flags ${ROOM_LINKS})
endfunction()

# ampbench_def_names(<variable> <file.def> <MACRO>): first arguments of the rows `MACRO(name, ...)` of a .def
# list, each once.
function(ampbench_def_names variable file macro)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  file(STRINGS ${file} rows REGEX "^${macro}\\(")
  set(names "")
  foreach(row ${rows})
    string(REGEX REPLACE "^${macro}\\(([a-zA-Z0-9_]+).*" "\\1" name "${row}")
    list(APPEND names ${name})
  endforeach()
  list(REMOVE_DUPLICATES names)
  set(${variable} ${names} PARENT_SCOPE)
endfunction()

# ampbench_isa_variants(<room> <levels> <file.c> ...): compiles each file once per CPU level of
# kernels/vec/isa.h, with AB_ISA_SUFFIX (plain, avx2, avx512, avx512bitalg) to name its one exported symbol.
# Only these objects may contain such instructions. Elsewhere than on x86-64 there is the plain level only.
# A room may have flags of its own (variable ab_flags). The objects are the room's property AB_ISA_OBJECTS,
# too. Nobody reads floating-point exceptions, and only without them does gcc turn the selections in
# elementary functions into vector code; no result changes. Sanitizers check every access of loops that are
# unrolled for registers, so with -O3 these files take a large part of that build; at -O1 gcc does not see
# that loops run, and calls what they set uninitialized. Debugging information is lines and functions: where
# variables are in such code takes a third of its compilation. AMPBENCH_VECTOR_FLAGS replaces all this.
function(ampbench_isa_variants room levels)
  if(NOT ab_flags)
    set(ab_flags ampbench_flags)
  endif()
  set(optimize -O3)
  if(AMPBENCH_SANITIZE)
    set(optimize -O1 $<$<C_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  endif()
  list(APPEND optimize $<$<CONFIG:Debug,RelWithDebInfo>:-g1>)
  if(AMPBENCH_VECTOR_FLAGS)
    separate_arguments(optimize UNIX_COMMAND "${AMPBENCH_VECTOR_FLAGS}")
  endif()
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
    target_link_libraries(${objects} PRIVATE ${ab_flags})
    target_compile_definitions(${objects} PRIVATE AB_ISA_SUFFIX=${level})
    target_compile_options(${objects} PRIVATE ${optimize} -fno-trapping-math ${flags_${level}})
    target_sources(${room} PRIVATE $<TARGET_OBJECTS:${objects}>)
    set_property(TARGET ${room} APPEND PROPERTY AB_ISA_OBJECTS $<TARGET_OBJECTS:${objects}>)
  endforeach()
endfunction()
