// What a backend offers for one op entry. Backend tables are arrays of these, one per line of ops.inc; a missing line in a
// backend's table leaves its slot empty, and the entry answers "not implemented on <backend>".
#pragma once

#include <cstddef>

#include "core/device_props.h"
#include "core/status.h"

namespace brim::core {

// `args` points to the entry's own, validated args struct.
struct Slot {
  Status (*run)(const void* args) = nullptr;
  // One line "<path> key=value ..."; `device` is null for the device that `args` is on (always null on the CPU).
  Status (*describe)(const void* args, const DeviceProps* device, char* text, size_t size) = nullptr;
  Status (*workspace)(const void* args, size_t* bytes) = nullptr;  // null: none is needed
  // The forms that run.path can name, null at the end. The cpu backend's, instruction sets, are the same for every op.
  const char* const* forms = nullptr;
};

// A slot made of typed functions.
template <class Args, Status (*Run)(const Args&),
          Status (*Describe)(const Args&, const DeviceProps*, char*, size_t)>
constexpr Slot slot() {
  return {[](const void* a) { return Run(*static_cast<const Args*>(a)); },
          [](const void* a, const DeviceProps* d, char* text, size_t n) {
            return Describe(*static_cast<const Args*>(a), d, text, n);
          }};
}

}  // namespace brim::core
