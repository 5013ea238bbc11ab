# HDF5's C sources at -O1 in Cargo's debug builds: half the time of -O3. Releases keep CMake's own flags.
if("$ENV{PROFILE}" STREQUAL "debug")
  set(CMAKE_C_FLAGS_RELEASE "-O1 -DNDEBUG" CACHE STRING "Flags of release builds")
endif()
