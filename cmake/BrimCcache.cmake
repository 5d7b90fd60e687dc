# Compiles through ccache where it is installed. Paths are hashed relative to the checkout, so that another clone hits too.
find_program(BRIM_CCACHE ccache)
if(BRIM_CCACHE AND PROJECT_IS_TOP_LEVEL)
  foreach(language C CXX CUDA)
    if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
          CCACHE_NOHASHDIR=1 ${BRIM_CCACHE})
    endif()
  endforeach()
endif()
