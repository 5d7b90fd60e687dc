# brim_box(name SOURCES ... DEPENDS ...): a part of the library with an include root of its own, so that
# #include "<name>/x.h" compiles only in boxes that depend on it. The roots are links in the build folder.
function(brim_box name)
  cmake_parse_arguments(BOX "" "" "SOURCES;DEPENDS" ${ARGN})
  set(root ${CMAKE_BINARY_DIR}/roots/${name})
  file(MAKE_DIRECTORY ${root})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${root}/${name} SYMBOLIC)
  add_library(brim_${name} STATIC ${BOX_SOURCES})
  target_include_directories(brim_${name} PUBLIC $<BUILD_INTERFACE:${root}>)
  target_link_libraries(brim_${name} PUBLIC ${BOX_DEPENDS})
  brim_compile_options(brim_${name})
endfunction()

# Warnings, no silent contraction of a*b+c (where a fused multiply-add is meant it is written), and the sanitizers.
function(brim_compile_options target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wpedantic -Wshadow -ffp-contract=off>)
  if(BRIM_WERROR)
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:C,CXX>:-Werror> "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Werror all-warnings>")
  endif()
  if(BRIM_SANITIZE)
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer>)
    target_link_options(${target} PUBLIC -fsanitize=address,undefined)
  endif()
endfunction()
