# Cross compilation for 64-bit ARM on Debian: gcc-aarch64-linux-gnu and, of the architecture arm64,
# libcjson-dev, libdeflate-dev, zlib1g-dev and libcmocka-dev. With qemu-user-static the tests run, too.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
find_program(CMAKE_CROSSCOMPILING_EMULATOR NAMES qemu-aarch64-static qemu-aarch64)
