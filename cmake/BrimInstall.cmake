# What `cmake --install` lays down: headers, the shared library, the command, and what find_package(brim) and pkg-config read.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/brim DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS brim EXPORT brimTargets)
if(TARGET brim_cli)
  install(TARGETS brim_cli)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/brim)
install(EXPORT brimTargets NAMESPACE brim:: DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/brimConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/brimConfig.cmake ${PROJECT_BINARY_DIR}/brimConfigVersion.cmake
        DESTINATION ${package_dir})

file(RELATIVE_PATH prefix_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/brim.pc.in ${PROJECT_BINARY_DIR}/brim.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/brim.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
