// Which plain copies there are (copy.h).
#include "cuda/copy.h"

#include <algorithm>
#include <iterator>

namespace brim::cuda {
namespace {

using core::CopyPattern;

constexpr const char* kVerbs[] = {"copy", "flip", "xor", "read"};  // by pattern
constexpr size_t kMostBlocks = 0x7fffffff;
constexpr int kReservedBytes = 1024;  // of an SM's shared memory, for each CTA

size_t tiles_of(size_t bytes, size_t tile) { return std::max<size_t>((bytes + tile - 1) / tile, 1); }

// One tile a CTA, and grids that stay on the SMs and step through.
void add_vectors(CopyForm form, size_t bytes, const core::DeviceProps& device, std::vector<CopyForm>* list) {
  const size_t tiles = tiles_of(bytes, static_cast<size_t>(kCopyThreads) * form.unroll * 16);
  const std::string kernel = std::string(kVerbs[static_cast<int>(form.pattern)]) + " " +
                             std::to_string(form.unroll) + "x16" + (form.streaming ? " streaming" : "");
  const auto add = [&](size_t blocks, const std::string& grid) {
    form.blocks = static_cast<unsigned>(blocks);
    form.name = kernel + ", " + grid;
    list->push_back(form);
  };
  if (tiles <= kMostBlocks) add(tiles, "a CTA a tile");
  for (const size_t per_sm : {4, 8, 16})
    if (per_sm * device.sm_count < tiles)
      add(per_sm * device.sm_count, std::to_string(per_sm) + " CTAs an SM");
}

void add_rings(size_t bytes, const core::DeviceProps& device, std::vector<CopyForm>* list) {
  if (device.compute_capability < 90) return;
  for (size_t i = 0; i < std::size(kCopyRings); ++i) {
    const auto& ring = kCopyRings[i];
    if (ring.ctas_per_sm * (copy_ring_shared(ring) + kReservedBytes) > device.shared_per_sm) continue;
    CopyForm form{CopyPattern::copy, CopyForm::Kind::ring};
    form.ring = static_cast<int>(i);
    form.blocks = static_cast<unsigned>(std::min<size_t>(
        tiles_of(bytes, ring.slot_bytes), static_cast<size_t>(ring.ctas_per_sm) * device.sm_count));
    form.name = "copy ring " + std::to_string(ring.slots) + "x" + std::to_string(ring.slot_bytes >> 10) +
                " KiB, " + std::to_string(ring.ctas_per_sm) + " CTAs an SM";
    list->push_back(form);
  }
}

}  // namespace

std::vector<CopyForm> copy_forms(CopyPattern pattern, size_t bytes, const core::DeviceProps& device) {
  std::vector<CopyForm> list;
  if (pattern == CopyPattern::copy) {
    list.push_back({pattern, CopyForm::Kind::driver});
    list.back().name = "cudaMemcpyAsync";
  }
  constexpr struct {
    int unroll;
    bool streaming;
  } kVectors[] = {{4, false}, {4, true}, {1, true}};
  for (const auto& [unroll, streaming] : kVectors) {
    CopyForm form{pattern, CopyForm::Kind::vectors};
    form.unroll = unroll;
    form.streaming = streaming;
    add_vectors(form, bytes, device, &list);
  }
  if (pattern == CopyPattern::copy) add_rings(bytes, device, &list);
  return list;
}

size_t flush_bytes(const core::DeviceProps& device) {
  return std::max<size_t>(256u << 20, 4 * static_cast<size_t>(device.l2_bytes));
}

CopyForm flush_form(const core::DeviceProps& device) {
  CopyForm form{CopyPattern::read, CopyForm::Kind::vectors};
  form.unroll = 4;
  form.blocks = static_cast<unsigned>(device.sm_count) * 8;
  form.name = "flush";
  return form;
}

}  // namespace brim::cuda
