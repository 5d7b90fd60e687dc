// What the field tests of the norms share: numbers in a storage type, and calls on every CPU backend and path.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "brim/brim.hpp"
#include "core/dispatch.h"
#include "core/tensor.h"
#include "entry/paths.h"

namespace brim {

using std::vector;

// Numbers in a storage type, `offset` elements past its alignment.
struct Data {
  brim_dtype dtype;
  vector<std::byte> storage;
  int64_t count, offset;

  Data(brim_dtype type, const vector<double>& values, int64_t first = 0)
      : dtype(type), count(static_cast<int64_t>(values.size())), offset(first) {
    storage.resize(static_cast<size_t>((count + offset + 1) * core::element_size(dtype)));
    core::dispatch_float(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (size_t i = 0; i < values.size(); ++i) at<T>(i) = core::narrow<T>(values[i]);
    });
  }
  template <class T>
  T& at(size_t i) {
    return reinterpret_cast<T*>(storage.data())[i + static_cast<size_t>(offset)];
  }
  vector<double> values() {
    return core::dispatch_float(dtype, [&](auto tag) {
      vector<double> list;
      for (int64_t i = 0; i < count; ++i)
        list.push_back(core::widen(at<typename decltype(tag)::type>(static_cast<size_t>(i))));
      return list;
    });
  }
  TensorView as(std::initializer_list<int64_t> shape, std::initializer_list<int64_t> strides = {}) {
    void* first = storage.data() + offset * core::element_size(dtype);
    return strides.size() ? view(first, dtype, shape, strides) : view(first, dtype, shape);
  }
};
inline vector<double> filled(int64_t count, double value) {
  return vector<double>(static_cast<size_t>(count), value);
}
inline vector<double> random_numbers(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  vector<double> list(static_cast<size_t>(count));
  for (double& v : list) v = normal(random);
  return list;
}

struct Run {
  brim_backend backend;
  entry::Path path;
};
inline void PrintTo(const Run& run, std::ostream* out) { *out << run.path.name; }
inline vector<Run> runs() {
  vector<Run> runs;
  for (brim_backend backend : {BRIM_BACKEND_REFERENCE, BRIM_BACKEND_CPU})
    for (const entry::Path& path : entry::paths(backend, BRIM_OP_rms_norm_forward))
      runs.push_back({backend, path});
  return runs;
}

inline std::string path_name(const testing::TestParamInfo<Run>& test) {
  std::string name = test.param.path.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class NormField : public testing::TestWithParam<Run> {
 protected:
  void run(brim_op op, RmsNormArgs args) {
    args.run.backend = GetParam().backend;
    args.run.path = GetParam().path.name;
    size_t bytes = 0;
    Status status = brim_workspace_size(op, &args, &bytes);
    if (status.code == BRIM_NOT_AVAILABLE) GTEST_SKIP() << status.message;
    ASSERT_TRUE(ok(status)) << status.message;
    vector<double> workspace(bytes / 8 + 4, NAN);
    args.workspace = workspace.data();
    while (reinterpret_cast<uintptr_t>(args.workspace) % 16)
      args.workspace = static_cast<double*>(args.workspace) + 1;
    args.workspace_bytes = bytes;
    switch (op) {
      case BRIM_OP_rms_norm_forward: status = rms_norm_forward(args); break;
      case BRIM_OP_rms_norm_backward: status = rms_norm_backward(args); break;
      case BRIM_OP_add_rms_norm_forward: status = add_rms_norm_forward(args); break;
      default: status = add_rms_norm_backward(args); break;
    }
    if (status.code == BRIM_NOT_AVAILABLE) GTEST_SKIP() << status.message;
    ASSERT_TRUE(ok(status)) << status.message;
  }
};

// A call that must come through, or ends the test where the backend lacks the entry.
#define RUN(...)    \
  run(__VA_ARGS__); \
  if (IsSkipped() || HasFatalFailure()) return

struct Options {
  double eps = 1e-6, offset = 0;
  brim_rms_norm_casting casting = BRIM_CASTING_LLAMA;
};
inline RmsNormArgs args_of(const Options& o) {
  RmsNormArgs args;
  args.eps = o.eps;
  args.offset = o.offset;
  args.casting = o.casting;
  return args;
}

// One row through the norm, all of one type.
struct OneRow {
  Data x, w, y, rstd{BRIM_FLOAT32, {NAN}};
  RmsNormArgs args;

  OneRow(brim_dtype type, const vector<double>& values, brim_dtype weight_type, const vector<double>& weight,
         const Options& options)
      : x(type, values), w(weight_type, weight), y(type, filled(x.count, NAN)), args(args_of(options)) {
    args.x = x.as({x.count});
    args.weight = w.as({x.count});
    args.y = y.as({x.count});
    args.rstd = rstd.as({1});
  }
};

}  // namespace brim
