// What an entry answers: a code and, when it is not BRIM_OK, a sentence for people. C11 and C++.
#ifndef BRIM_STATUS_H
#define BRIM_STATUS_H

#include <stdint.h>

typedef int32_t brim_code;
enum {
  BRIM_OK = 0,
  BRIM_INVALID_ARGUMENT = 1,  // shape, stride, option, aliasing
  BRIM_INVALID_DTYPE = 2,     // an element type, or a mix of them, that the op does not take
  BRIM_OUT_OF_RANGE = 3,      // a position or target outside its table (CPU backends)
  BRIM_DEVICE_ERROR = 4,      // tensors on different devices, or on one that the backend cannot reach
  BRIM_NOT_AVAILABLE = 5,     // this build, machine or backend does not have what was asked for
  BRIM_CUDA_ERROR = 6,        // an error that the CUDA runtime reported
  BRIM_INTERNAL_ERROR = 7     // out of host memory, or a fault of brim's own
};

// Returned by value, so there is no state to reset and no thread to mind. `message` names op, argument, what was
// expected and what was found; it is empty on success and always ends in a zero.
typedef struct brim_status {
  brim_code code;
  char message[508];
} brim_status;

#ifdef __cplusplus
namespace brim {
using Status = brim_status;
inline bool ok(const Status& s) { return s.code == BRIM_OK; }
}  // namespace brim
#endif

#endif  // BRIM_STATUS_H
