// The plain copies that brim.bench measures beside the ops, and the flush of the caches between samples.
#include "cpu/copy.h"

#include <torch/csrc/stable/library.h>

#include <stdexcept>
#include <string>

#include "convert.h"
#include "cuda/copy.h"
#ifdef USE_CUDA
#include "cuda/runtime.h"
#endif

namespace {

using brim::binding::Tensor;
using brim::core::CopyMemory;
using brim::core::CopyPattern;
using Other = std::optional<Tensor>;

CopyPattern pattern_of(const std::string& name) {
  CopyPattern pattern;
  if (!brim::core::parse_copy_pattern(name.c_str(), &pattern))
    throw std::invalid_argument("copy: there is no pattern '" + name + "'");
  return pattern;
}

size_t bytes_of(const Tensor& tensor) {
  if (!tensor.is_contiguous()) throw std::invalid_argument("copy: a buffer is not contiguous");
  return static_cast<size_t>(tensor.numel()) * tensor.element_size();
}

// Tensors are buffers here, whatever their shape and type.
CopyMemory memory_of(CopyPattern pattern, const Tensor& to, const Tensor& from, const Other& other) {
  const bool in_place = pattern == CopyPattern::in_place;
  const bool two = pattern == CopyPattern::two_reads_one_write;
  const size_t bytes = bytes_of(in_place ? to : from), room = pattern == CopyPattern::read ? 16 : bytes;
  if (two != other.has_value()) throw std::invalid_argument("copy: `other` is for two_reads_one_write");
  if (bytes_of(to) < room || (two && bytes_of(*other) < bytes))
    throw std::invalid_argument("copy: a buffer is smaller than `from`");
  CopyMemory memory;
  memory.bytes = bytes;
  memory.to = brim::binding::output(to).data;
  if (!in_place) memory.from = brim::binding::input(from).data;
  if (two) memory.other = brim::binding::input(*other).data;
  return memory;
}

template <class Forms>
const auto& at(const Forms& forms, int64_t form) {
  if (form < 0 || static_cast<size_t>(form) >= forms.size())
    throw std::invalid_argument("copy: there is no form " + std::to_string(form));
  return forms[static_cast<size_t>(form)];
}

std::string cpu_forms(const Tensor&, const std::string& pattern, int64_t) {
  std::string names;
  for (const char* name : brim::cpu::copy_forms(pattern_of(pattern))) names += std::string(name) + '\n';
  return names;
}
void cpu_copy(const Tensor& to, const Tensor& from, const Other& other, const std::string& name,
              int64_t form) {
  const CopyPattern pattern = pattern_of(name);
  at(brim::cpu::copy_forms(pattern), form);
  brim::binding::raise(
      brim::cpu::run_copy(pattern, static_cast<size_t>(form), memory_of(pattern, to, from, other)));
}
int64_t cpu_flush_bytes(const Tensor&) { return static_cast<int64_t>(brim::cpu::flush_bytes()); }
void cpu_flush(const Tensor& to, const Tensor& from) { cpu_copy(to, from, std::nullopt, "read", 0); }

#ifdef USE_CUDA
const brim::core::DeviceProps& props_of(const Tensor& tensor) {
  const brim::core::DeviceProps* props;
  brim::binding::raise(brim::cuda::device_props("copy", tensor.get_device_index(), &props));
  return *props;
}
void launch(const brim::cuda::CopyForm& form, const Tensor& to, const CopyMemory& memory) {
  brim::binding::raise(
      brim::cuda::launch_copy(form, memory, to.get_device_index(), brim::binding::current_stream(to.get())));
}
std::string cuda_forms(const Tensor& like, const std::string& pattern, int64_t bytes) {
  std::string names;
  for (const brim::cuda::CopyForm& form :
       brim::cuda::copy_forms(pattern_of(pattern), static_cast<size_t>(bytes), props_of(like)))
    names += form.name + '\n';
  return names;
}
void cuda_copy(const Tensor& to, const Tensor& from, const Other& other, const std::string& name,
               int64_t form) {
  const CopyPattern pattern = pattern_of(name);
  const CopyMemory memory = memory_of(pattern, to, from, other);
  launch(at(brim::cuda::copy_forms(pattern, memory.bytes, props_of(to)), form), to, memory);
}
int64_t cuda_flush_bytes(const Tensor& like) {
  return static_cast<int64_t>(brim::cuda::flush_bytes(props_of(like)));
}
void cuda_flush(const Tensor& to, const Tensor& from) {
  launch(brim::cuda::flush_form(props_of(to)), to, memory_of(CopyPattern::read, to, from, std::nullopt));
}
#endif

// Private. The forms, a line each, are those of copies of so many bytes on `like`'s device. Reading, `to` is
// the place for a sum (core/copy_pattern.h).
STABLE_TORCH_LIBRARY_FRAGMENT(brim, m) {
  m.def("_copy_forms(Tensor like, str pattern, int bytes) -> str");
  m.def("_copy(Tensor(a!) to, Tensor src, Tensor? other, str pattern, int form) -> ()");
  m.def("_flush_bytes(Tensor like) -> int");
  m.def("_flush(Tensor(a!) to, Tensor src) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(brim, CPU, m) {
  m.impl("_copy_forms", TORCH_BOX(&cpu_forms));
  m.impl("_copy", TORCH_BOX(&cpu_copy));
  m.impl("_flush_bytes", TORCH_BOX(&cpu_flush_bytes));
  m.impl("_flush", TORCH_BOX(&cpu_flush));
}
#ifdef USE_CUDA
STABLE_TORCH_LIBRARY_IMPL(brim, CUDA, m) {
  m.impl("_copy_forms", TORCH_BOX(&cuda_forms));
  m.impl("_copy", TORCH_BOX(&cuda_copy));
  m.impl("_flush_bytes", TORCH_BOX(&cuda_flush_bytes));
  m.impl("_flush", TORCH_BOX(&cuda_flush));
}
#endif

}  // namespace
