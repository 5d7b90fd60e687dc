// Validation and plans on calls spoiled at random, several fields at once: any answer will do, but it must be an answer.
// Under the sanitizers this finds arithmetic that overflows; nothing here is run, only described, so no memory is touched.
#include <cstddef>
#include <iterator>
#include <random>

#include "entry/entry.h"
#include "validation.h"

namespace brim {
namespace {

class Spoiler {
 public:
  explicit Spoiler(unsigned seed) : random_(seed) {}

  void spoil(Call& call) {
    RopeArgs& a = call.args;
    switch (pick(8)) {
      case 0: call.position_ids({kS}, pick(2) ? BRIM_INT32 : BRIM_INT64); break;
      case 1: call.sections(2, 1, 1); break;
      case 2: call.thd(); break;
      case 3: call.pairing(pick(3)); break;
      case 4: call.on(BRIM_CUDA, 0); break;
      case 5: call.no_k(); break;
      default: break;
    }
    brim_tensor* tensors[] = {&a.q, &a.k, &a.q_out, &a.k_out, &a.cos, &a.sin, &a.positions};
    for (int changes = pick(4); changes > 0; --changes) {
      brim_tensor& t = *tensors[pick(7)];
      switch (pick(12)) {
        case 0: t.dtype = pick(9) - 1; break;
        case 1: t.rank = pick(8) - 1; break;
        case 2: t.device = pick(3); break;
        case 3: t.data = reinterpret_cast<void*>(static_cast<uintptr_t>(number())); break;
        case 4:
        case 5: t.shape[pick(5)] = number(); break;
        case 6:
        case 7: t.strides[pick(5)] = number(); break;
        case 8: a.rotary_dim = number(); break;
        case 9: a.sections[pick(3)] = static_cast<int32_t>(number()); break;
        case 10: a.layout = pick(4); break;
        default: a.inverse = pick(3); break;
      }
    }
    // Large in a consistent way, so that it gets past the comparison of shapes.
    if (pick(4) == 0) {
      for (int axes = 1 + pick(3); axes > 0; --axes) {
        const int axis = pick(4);
        const int64_t n = pick(2) ? 2 : number();
        for (brim_tensor* t : {&a.q, &a.k, &a.q_out, &a.k_out}) t->shape[axis] = n;
        if (axis == 2) a.cos.shape[0] = a.sin.shape[0] = n;
        a.q.strides[axis] = number();
        a.q_out.strides[axis] = number();
      }
    }
  }

 private:
  int pick(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  int64_t number() {
    constexpr int64_t kNasty[] = {0,
                                  1,
                                  2,
                                  3,
                                  8,
                                  40,
                                  -1,
                                  -8,
                                  65536,
                                  INT32_MAX,
                                  1ll << 31,
                                  1ll << 32,
                                  1ll << 40,
                                  1ll << 58,
                                  1ll << 59,
                                  1ll << 60,
                                  1ll << 61,
                                  1ll << 62,
                                  INT64_MAX,
                                  INT64_MIN,
                                  INT64_MAX / 2,
                                  INT64_MAX / 8,
                                  (1ll << 61) - 1};
    return kNasty[pick(std::size(kNasty))];
  }

  std::mt19937 random_;
};

TEST(RandomCalls, AreAnswered) {
  Spoiler spoiler(5);
  int accepted = 0, refused = 0;
  for (int i = 0; i < 200000; ++i) {
    Call call;
    spoiler.spoil(call);
    call.args.run.backend = i % 4;
    char text[256];
    const Status answers[] = {brim_describe_plan(BRIM_OP_rope_forward, &call.args, text, sizeof text),
                              entry::describe_plan_on(BRIM_OP_rope_forward, &call.args,
                                                      core::kKnownDevices[i % 7], text, sizeof text)};
    for (const Status& status : answers) {
      ASSERT_GE(status.code, BRIM_OK);
      ASSERT_LE(status.code, BRIM_INTERNAL_ERROR);
      ASSERT_NE(status.code, BRIM_INTERNAL_ERROR) << status.message;
      if (ok(status)) {
        ASSERT_STREQ(status.message, "");
        ASSERT_STRNE(text, "");
      } else if (status.code != BRIM_NOT_AVAILABLE && status.code != BRIM_CUDA_ERROR) {
        ASSERT_EQ(std::string(status.message).rfind("rope_forward: ", 0), 0u) << status.message;
      }
      ok(status) ? ++accepted : ++refused;
    }
  }
  EXPECT_GT(accepted, 20000);
  EXPECT_GT(refused, 20000);
}

}  // namespace
}  // namespace brim
