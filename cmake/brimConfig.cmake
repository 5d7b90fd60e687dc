# find_package(brim) gives brim::brim: one shared library with a C interface and no dependencies to look for.
include(${CMAKE_CURRENT_LIST_DIR}/brimTargets.cmake)
