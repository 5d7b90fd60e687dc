#include "harness/case_memory.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "core/tensor.h"
#include "harness/elements.h"

namespace brim::harness {
namespace {

// Poisoned bytes before and after each storage. A multiple of the allocation's alignment, so that the case's
// own offsets decide how its tensors are aligned.
constexpr size_t kGuard = 256;

// A tensor with more elements repeats its fill after a prime number of them, so that no offset that is wrong
// by a power of two meets the same numbers again.
constexpr int64_t kPeriod = 1'000'003;

TensorView view_of(const ops::CaseTensor& t) {
  TensorView v{};
  v.dtype = t.dtype;
  v.rank = static_cast<int32_t>(t.shape.size());
  int64_t stride = 1;
  for (int i = v.rank; i-- > 0; stride *= t.shape[i]) {
    v.shape[i] = t.shape[i];
    v.strides[i] = t.strides.empty() ? stride : t.strides[i];
  }
  return v;
}

bool is_output(const ops::CaseTensor& t) { return t.role != ops::Role::input; }
bool is_filled(const ops::CaseTensor& t) { return t.role != ops::Role::output; }

}  // namespace

CaseMemory::CaseMemory(const ops::Case& c) : case_(c) {
  std::map<int, int> shared;  // the case's number of a storage -> ours
  for (const ops::CaseTensor& t : c.tensors) {
    if (!t.dtype) {
      storage_.push_back(-1);
      continue;
    }
    int storage = static_cast<int>(storage_bytes_.size());
    if (t.storage >= 0) storage = shared.try_emplace(t.storage, storage).first->second;
    if (storage == static_cast<int>(storage_bytes_.size())) storage_bytes_.push_back(2 * kGuard);
    const int64_t elements = t.offset + core::span_elements(view_of(t));
    const size_t bytes = static_cast<size_t>(elements * core::element_size(t.dtype)) + 2 * kGuard;
    storage_bytes_[storage] = std::max(storage_bytes_[storage], bytes);
    storage_.push_back(storage);
  }
}

size_t CaseMemory::bytes() const {
  size_t sum = 0;
  for (size_t n : storage_bytes_) sum += n;
  return sum;
}

std::byte CaseMemory::poison_of(int storage) const {
  for (size_t i = 0; i < case_.tensors.size(); ++i)
    if (storage_[i] == storage && is_filled(case_.tensors[i])) return kPoison;
  return kOutputPoison;
}

Image CaseMemory::make_image(uint64_t seed) const {
  Image image;
  for (size_t n : storage_bytes_) image.emplace_back(n);
  for (size_t s = 0; s < image.size(); ++s) image[s].fill(poison_of(static_cast<int>(s)));
  const std::vector<TensorView> views = this->views(image);
  for (size_t i = 0; i < views.size(); ++i) {
    const ops::CaseTensor& t = case_.tensors[i];
    if (!t.dtype || !is_filled(t)) continue;
    ops::Random random(seed + static_cast<uint64_t>(t.draw < 0 ? static_cast<int>(i) : -1 - t.draw));
    std::vector<double> values(static_cast<size_t>(std::min(core::element_count(views[i]), kPeriod)));
    t.fill(values, random);
    write_elements(views[i], values);
  }
  return image;
}

std::vector<TensorView> CaseMemory::views(const std::vector<void*>& storages, brim_device_type device,
                                          int device_index) const {
  std::vector<TensorView> views;
  for (size_t i = 0; i < case_.tensors.size(); ++i) {
    const ops::CaseTensor& t = case_.tensors[i];
    TensorView v{};
    if (t.dtype) {
      v = view_of(t);
      v.data =
          static_cast<std::byte*>(storages[storage_[i]]) + kGuard + t.offset * core::element_size(t.dtype);
      v.device = device;
      v.device_index = device_index;
    }
    views.push_back(v);
  }
  return views;
}

std::vector<TensorView> CaseMemory::views(Image& image) const {
  std::vector<void*> pointers;
  for (auto& storage : image) pointers.push_back(storage.data());
  return views(pointers, BRIM_CPU, 0);
}

bool CaseMemory::equal(const Image& a, const Image& b) {
  for (size_t s = 0; s < a.size(); ++s)
    if (a[s].mismatch(b[s]) != a[s].size()) return false;
  return true;
}

std::string CaseMemory::stray_writes(Image& before, Image& after) const {
  const std::vector<TensorView> old_views = views(before), new_views = views(after);
  for (size_t i = 0; i < old_views.size(); ++i)
    if (case_.tensors[i].dtype && is_output(case_.tensors[i])) copy_elements(new_views[i], old_views[i]);
  for (size_t s = 0; s < before.size(); ++s) {
    const size_t at = before[s].mismatch(after[s]);
    if (at == before[s].size()) continue;
    std::string tensors;
    for (size_t i = 0; i < case_.tensors.size(); ++i)
      if (storage_[i] == static_cast<int>(s))
        tensors += (tensors.empty() ? "" : ", ") + case_.tensors[i].name;
    const auto byte = static_cast<std::ptrdiff_t>(at) - static_cast<std::ptrdiff_t>(kGuard);
    return fmt::format("wrote outside the outputs: byte {} of the {} bytes of the storage of {}", byte,
                       before[s].size() - 2 * kGuard, tensors);
  }
  return "";
}

DeviceStorages::DeviceStorages(Device& device, const std::vector<size_t>& bytes)
    : device_(device), bytes_(bytes) {
  try {
    for (size_t n : bytes_) pointers_.push_back(device_.allocate(n));
  } catch (...) {
    for (void* p : pointers_) device_.release(p);
    throw;
  }
}

DeviceStorages::~DeviceStorages() {
  for (void* p : pointers_) device_.release(p);
}

void DeviceStorages::upload(const Image& image) {
  for (size_t i = 0; i < pointers_.size(); ++i) device_.upload(pointers_[i], image[i].data(), bytes_[i]);
}

Image DeviceStorages::download() {
  Image image;
  for (size_t i = 0; i < pointers_.size(); ++i) {
    image.emplace_back(bytes_[i]);
    device_.download(image[i].data(), pointers_[i], bytes_[i]);
  }
  return image;
}

Workspace::Workspace(Device& device, const ops::Case& c, brim_op op, void* args, size_t alignment) {
  bytes_ = 0;
  begin_ = kGuard + alignment % kUsualAlignment;
  // An answer other than a size is that of the call too.
  if (!c.set_workspace || !ok(brim_workspace_size(op, args, &bytes_)) || bytes_ == 0) return;
  const std::vector<size_t> sizes{begin_ + bytes_ + kGuard};
  storage_ = std::make_unique<DeviceStorages>(device, sizes);
  Image poison;
  poison.emplace_back(sizes[0]).fill(kPoison);
  storage_->upload(poison);
  c.set_workspace(args, static_cast<std::byte*>(storage_->pointers()[0]) + begin_, bytes_);
}

std::string Workspace::stray_writes() {
  if (!storage_) return "";
  const Image after = storage_->download();
  for (size_t i = 0; i < after[0].size(); ++i)
    if ((i < begin_ || i >= begin_ + bytes_) && after[0].data()[i] != kPoison)
      return fmt::format("wrote outside the workspace: byte {} of its {}",
                         static_cast<std::ptrdiff_t>(i) - static_cast<std::ptrdiff_t>(begin_), bytes_);
  return "";
}

std::vector<TensorView> narrow(std::vector<TensorView> views, const ops::Sample& sample) {
  for (size_t i = 0; i < sample.size(); ++i) {
    const ops::Slice& slice = sample[i];
    TensorView& v = views[i];
    if (slice.axis < 0 || !v.dtype) continue;
    v.data = static_cast<std::byte*>(v.data) +
             slice.begin * core::used_stride(v, slice.axis) * core::element_size(v.dtype);
    v.shape[slice.axis] = slice.count;
  }
  return views;
}

}  // namespace brim::harness
