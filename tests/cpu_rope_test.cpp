// RoPE on the CPU, every instruction set present, bit for bit against the formula in the same arithmetic; and
// the formula itself against the reference in double.
#include "cpu_rope_case.h"

#include <omp.h>

namespace brim::test {
namespace {

class CpuRope : public testing::TestWithParam<const char*> {
 protected:
  void check(const RopeSpec& spec, uint64_t seed = 1, bool cut = false) {
    std::mt19937_64 random(seed);
    RopeCase(spec, random).check(GetParam(), cut);
  }
};

constexpr brim_dtype kTypes[] = {BRIM_FLOAT32, BRIM_BFLOAT16, BRIM_FLOAT16, BRIM_FLOAT64};
constexpr brim_rope_pairing kPairings[] = {BRIM_PAIRING_HALF, BRIM_PAIRING_INTERLEAVED, BRIM_PAIRING_TO_HALF};

brim_dtype table_for(brim_dtype dtype) { return dtype == BRIM_FLOAT64 ? BRIM_FLOAT64 : BRIM_FLOAT32; }

TEST_P(CpuRope, EveryWidthOfHead) {
  for (brim_dtype dtype : kTypes)
    for (brim_rope_pairing pairing : kPairings)
      for (bool inverse : {false, true})
        for (int64_t pairs = 1; pairs <= 150; pairs += pairs < 40 ? 1 : 11) {
          RopeSpec spec;
          spec.q = dtype;
          spec.table = table_for(dtype);
          spec.s = 3;
          spec.h = 2;
          spec.d = spec.r = 2 * pairs;
          spec.pairing = pairing;
          spec.inverse = inverse;
          check(spec, pairs);
          if (HasFailure()) return;
        }
}

TEST_P(CpuRope, EveryStorageAndAlignment) {
  for (brim_dtype dtype : kTypes)
    for (brim_rope_pairing pairing : kPairings)
      for (int in = 0; in < kStorages; ++in)
        for (int out = 0; out < kStorages; ++out)
          for (int64_t shift : {0, 1, 3}) {
            RopeSpec spec;
            spec.q = spec.k = dtype;
            spec.table = table_for(dtype);
            spec.b = 2;
            spec.s = 5;
            spec.h = 3;
            spec.hk = 2;
            spec.d = 77;
            spec.r = 70;
            spec.pairing = pairing;
            spec.in = static_cast<Storage>(in);
            spec.out = static_cast<Storage>(out);
            spec.shift = shift;
            if (is_expanded(spec.out)) continue;
            check(spec, in * 10 + out);
            if (in == out && pairing != BRIM_PAIRING_TO_HALF) {
              spec.in_place = true;
              check(spec, in);
            }
            if (HasFailure()) return;
          }
}

// Everything at once, at random: what no list of cases foresees.
TEST_P(CpuRope, RandomCalls) {
  for (uint64_t seed = 0; seed < 1000 && !HasFailure(); ++seed) {
    std::mt19937_64 random(seed);
    const auto pick = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
    RopeSpec spec;
    spec.q = kTypes[pick(4)];
    spec.k = spec.q == BRIM_FLOAT64 ? spec.q : pick(2) ? spec.q : BRIM_FLOAT32;
    const brim_dtype tables[] = {spec.q, BRIM_FLOAT32};
    spec.table = spec.q == BRIM_FLOAT64 ? spec.q : tables[pick(2)];
    spec.b = 1 + pick(3);
    spec.s = 1 + pick(20);
    spec.h = 1 + pick(10);
    spec.hk = pick(5);
    spec.d = 1 + pick(pick(4) ? 80 : 300);
    spec.r = pick(3) ? spec.d / 2 * 2 : 2 * pick(spec.d / 2 + 1);
    spec.layout = static_cast<brim_rope_layout>(pick(3));
    if (spec.layout == BRIM_LAYOUT_THD) spec.b = 1;
    spec.pairing = spec.r ? kPairings[pick(3)] : BRIM_PAIRING_INTERLEAVED;  // half asks for r where it is 0
    spec.inverse = pick(2);
    spec.backward = pick(2);
    spec.in = static_cast<Storage>(pick(kStorages));
    spec.out = static_cast<Storage>(pick(kStorages - 2));
    spec.in_place = !is_expanded(spec.in) && spec.pairing != BRIM_PAIRING_TO_HALF && pick(3) == 0;
    spec.shift = pick(4);
    const brim_dtype positions[] = {BRIM_DTYPE_NONE, BRIM_INT32, BRIM_INT64};
    if (spec.r >= 6 && pick(4) == 0)
      spec.sections = static_cast<int>(1 + pick(2));
    else
      spec.positions = positions[pick(3)];
    spec.table_form = static_cast<int>(pick(3));
    spec.wide_table = spec.pairing == BRIM_PAIRING_HALF && spec.r > 0 && pick(2);
    spec.column_stride = 1 + pick(2);
    RopeCase(spec, random).check(GetParam(), seed % 2);
  }
}

// r/2 beyond what the tables on the stack hold, in all their forms.
TEST_P(CpuRope, HugeHead) {
  for (brim_dtype dtype : kTypes)
    for (brim_rope_pairing pairing : kPairings)
      for (Storage storage : {Storage::head_major, Storage::inner_stride}) {
        RopeSpec spec;
        spec.q = dtype;
        spec.table = table_for(dtype);
        spec.s = 2;
        spec.h = 2;
        spec.r = 40002;
        spec.d = 40010;
        spec.pairing = pairing;
        spec.in = spec.out = storage;
        check(spec);
      }
}

using cpu::Writing;

// Outputs larger than the caches go past them: the same bits, nothing written outside. Here in vectors that
// are whole cache lines.
TEST_P(CpuRope, StreamedOutputs) {
  for (brim_dtype dtype : kTypes)
    for (brim_rope_pairing pairing : kPairings)
      for (Storage storage : {Storage::head_major, Storage::token_major, Storage::packed})
        for (int64_t r : {64, 128, 192, 256, 512}) {
          RopeSpec spec;
          spec.q = spec.k = dtype;
          spec.table = table_for(dtype);
          spec.s = 13;
          spec.h = 9;
          spec.hk = 2;
          spec.r = r;
          spec.d = r + (r % 128 ? 64 : 0);
          spec.pairing = pairing;
          spec.in = spec.out = storage;
          std::mt19937_64 random(r);
          RopeCase c(spec, random);
          c.check(GetParam(), true);
          const bool halves = pairing != BRIM_PAIRING_INTERLEAVED;
          const bool whole = !halves || r * c.q().size() % 128 == 0;
          EXPECT_EQ(c.writing(), whole ? Writing::stream : Writing::stage) << c.describe();
          if (HasFailure()) return;
        }
}

// Heads that are not: made in L1 first.
TEST_P(CpuRope, StagedOutputs) {
  for (brim_dtype dtype : kTypes)
    for (brim_rope_pairing pairing : kPairings)
      for (Storage in : {Storage::head_major, Storage::token_major, Storage::packed})
        for (Storage out : {Storage::head_major, Storage::token_major, Storage::packed, Storage::gaps})
          for (int64_t d : {6, 23, 56, 80, 92, 128, 192, 320, 700}) {
            RopeSpec spec;
            spec.q = spec.k = dtype;
            spec.table = table_for(dtype);
            spec.s = 29;
            spec.h = 19;
            spec.hk = d % 3 ? 2 : 1;
            spec.r = d % 8 ? d / 2 * 2 : d - 16;
            spec.d = d;
            spec.pairing = pairing;
            spec.in = in;
            spec.out = out;
            spec.shift = 1 + d % 5;
            std::mt19937_64 random(d);
            RopeCase c(spec, random);
            c.check(GetParam(), true);
            const int64_t head = d * c.q().size(), run = head * (in == Storage::head_major ? spec.s : spec.h);
            const bool adjoin = out == Storage::head_major ? in == out : in != Storage::head_major;
            if (out != Storage::gaps) {
              EXPECT_EQ(c.writing(), adjoin && head <= 4096 && run >= 512 ? Writing::stage : Writing::plain)
                  << c.describe();
            }
            if (HasFailure()) return;
          }
}

// Heads that do not adjoin, too, where each is made of whole lines, though its halves are not.
TEST_P(CpuRope, StagedHeadsThatDoNotAdjoin) {
  for (int64_t d : {32, 48, 96, 160})
    for (int64_t shift : {0, 1}) {
      RopeSpec spec;
      spec.q = spec.k = BRIM_BFLOAT16;
      spec.s = 13;
      spec.h = 9;
      spec.hk = 2;
      spec.r = spec.d = d;
      spec.in = Storage::head_major;
      spec.out = Storage::token_major;
      spec.shift = shift;
      std::mt19937_64 random(d);
      RopeCase c(spec, random);
      c.check(GetParam(), true);
      EXPECT_EQ(c.writing(), shift == 0 && d % 32 == 0 ? Writing::stage : Writing::plain) << c.describe();
    }
}

TEST_P(CpuRope, NothingToDo) {
  RopeSpec spec;
  spec.b = spec.s = spec.h = spec.hk = 2;
  spec.d = spec.r = 8;
  for (int64_t RopeSpec::*size : {&RopeSpec::b, &RopeSpec::s, &RopeSpec::h}) {
    RopeSpec empty = spec;
    empty.*size = 0;
    check(empty);
    check(empty, 1, true);
  }
  spec.pairing = BRIM_PAIRING_INTERLEAVED;  // half asks for r where it is 0
  spec.r = 0;                               // all passes through
  check(spec);
  for (int64_t d : {7, 64, 256}) {
    spec.d = d;
    check(spec, 1, true);
  }
  spec.d = 0;
  check(spec);
}

TEST_P(CpuRope, NansInfinitiesAndSubnormals) {
  const float specials[] = {NAN,    -NAN,    INFINITY,        -INFINITY, 0.0f, -0.0f,
                            1e-45f, -3e-39f, 1.17549435e-38f, 3.4e38f,   1.0f};
  for (brim_dtype dtype : {BRIM_FLOAT32, BRIM_BFLOAT16, BRIM_FLOAT16})
    for (brim_rope_pairing pairing : kPairings) {
      RopeSpec spec;
      spec.q = dtype;
      spec.s = 11;
      spec.h = 2;
      spec.d = spec.r = 92;
      spec.pairing = pairing;
      std::mt19937_64 random(3);
      RopeCase c(spec, random);
      for (Tensor* t : {&c.q(), &c.cos(), &c.sin()})
        t->each([&](int64_t offset) {
          if (random() % 3) return;
          const float special = specials[random() % std::size(specials)];
          core::dispatch_float(t->view().dtype, [&](auto tag) {
            const auto v = core::narrow<typename decltype(tag)::type>(special);
            std::memcpy(t->at(offset), &v, sizeof v);
          });
        });
      // The NaN of NVIDIA GPUs has every bit set: rounding it as a number would carry into the sign.
      const uint32_t all_ones = 0x7fffffff;
      std::memcpy(c.cos().at(5), &all_ones, 4);
      c.check(GetParam());
    }
}

// Every 16-bit value goes through: c = 1 and s = 0 give it back, but for -0 + 0 = 0.
TEST_P(CpuRope, EverySixteenBitValueSurvives) {
  for (brim_dtype dtype : {BRIM_BFLOAT16, BRIM_FLOAT16})
    for (brim_rope_pairing pairing : kPairings)
      for (int64_t d : {128, 6}) {
        RopeSpec spec;
        spec.q = dtype;
        spec.s = 65536 / d + 1;
        spec.d = spec.r = d;
        spec.pairing = pairing;
        std::mt19937_64 random(1);
        RopeCase c(spec, random);
        uint16_t next = 0;
        c.q().each([&](int64_t offset) {
          std::memcpy(c.q().at(offset), &next, 2);
          ++next;
        });
        const float one = 1, zero = 0;
        c.cos().each([&](int64_t offset) { std::memcpy(c.cos().at(offset), &one, 4); });
        c.sin().each([&](int64_t offset) { std::memcpy(c.sin().at(offset), &zero, 4); });
        c.check(GetParam());
      }
}

// Ties and their neighbours: q = 1 and s = 0 put any float32 cosine before the one rounding.
TEST_P(CpuRope, RoundingTies) {
  for (brim_dtype dtype : {BRIM_BFLOAT16, BRIM_FLOAT16})
    for (brim_rope_pairing pairing : kPairings) {
      RopeSpec spec;
      spec.q = dtype;
      spec.d = spec.r = 128;
      spec.s = 6 * 65536 / 64;
      spec.pairing = pairing;
      std::mt19937_64 random(1);
      RopeCase c(spec, random);
      c.q().each([&](int64_t offset) {
        core::dispatch_float(dtype, [&](auto tag) {
          const auto v = core::narrow<typename decltype(tag)::type>(1.0);
          std::memcpy(c.q().at(offset), &v, sizeof v);
        });
      });
      uint32_t n = 0;
      c.cos().each([&](int64_t offset) {
        // The middle between two neighbours, one below, one above, for each value of the 16-bit type.
        const uint32_t low = n / 6, which = n % 6;
        float value;
        if (dtype == BRIM_BFLOAT16) {
          value = core::from_bits((low << 16) + (which < 3 ? 0x7fff + which : which - 3));
        } else {
          const float a = core::widen(core::float16{static_cast<uint16_t>(low)});
          const float b = core::widen(core::float16{static_cast<uint16_t>(low + 1)});
          const float middle = a + (b - a) / 2;
          value = which < 3 ? std::nextafter(middle, which == 0 ? -INFINITY : INFINITY) : middle;
          if (which == 4) value = std::nextafter(a, INFINITY);
          if (which == 5) value = a;
        }
        ++n;
        std::memcpy(c.cos().at(offset), &value, 4);
      });
      const float zero = 0;
      c.sin().each([&](int64_t offset) { std::memcpy(c.sin().at(offset), &zero, 4); });
      c.check(GetParam());
    }
}

// Pass-through elements and NaN payloads are compared as bits by every check; here most of the head passes
// through.
TEST_P(CpuRope, PartialRotaryKeepsPayloads) {
  for (brim_dtype dtype : kTypes) {
    RopeSpec spec;
    spec.q = dtype;
    spec.table = table_for(dtype);
    spec.s = 7;
    spec.h = 3;
    spec.d = 101;
    spec.r = 10;
    std::mt19937_64 random(5);
    RopeCase c(spec, random);
    c.q().each([&](int64_t offset) {
      const uint64_t bits = random() | 0x7ff07ff07ff07ff0;  // signalling NaNs of each type
      std::memcpy(c.q().at(offset), &bits, c.q().size());
    });
    c.check(GetParam());
  }
}

// q and k as neighbouring slices of one buffer are rotated as one tensor: the same bits as apart, and what
// lies beside them stays.
TEST_P(CpuRope, SlicesOfOneBuffer) {
  constexpr int64_t kB = 2, kS = 11, kH = 5, kHk = 3, kRow = kH + kHk + 2, kD = 24;
  std::mt19937_64 random(7);
  const std::vector<int64_t> strides{kS * kRow * kD, kRow * kD, kD, 1};
  Tensor buffer(BRIM_BFLOAT16, {kB, kS, kRow, kD}, strides),
      apart(BRIM_BFLOAT16, {kB, kS, kRow, kD}, strides);
  Tensor cos(BRIM_FLOAT32, {kS, kD / 2}, {kD / 2, 1}), sin(BRIM_FLOAT32, {kS, kD / 2}, {kD / 2, 1});
  for (Tensor* t : {&buffer, &apart, &cos, &sin}) t->fill(random);
  const auto heads = [&](const Tensor& t, int64_t first, int64_t count) {
    return view(t.at(first * kD), BRIM_BFLOAT16, {kB, kS, count, kD},
                {strides[0], strides[1], strides[2], 1});
  };
  RopeArgs args;
  args.layout = BRIM_LAYOUT_BSHD;
  args.cos = cos.view();
  args.sin = sin.view();
  args.rotary_dim = kD;
  args.run.path = GetParam();
  Tensor expected = buffer.clone();
  for (auto [first, count] : {std::pair<int64_t, int64_t>{0, kH}, {kH, kHk}}) {
    args.q = args.q_out = heads(expected, first, count);
    ASSERT_EQ(rope_forward(args).code, BRIM_OK);
  }
  Tensor in_place = buffer.clone();
  args.q = args.q_out = heads(in_place, 0, kH);
  args.k = args.k_out = heads(in_place, kH, kHk);
  ASSERT_EQ(cpu::make_rope_plan(args, ops::make_rope_problem(args), 1, 0).call.parts[1].heads, 0)
      << "not as one";
  ASSERT_EQ(rope_forward(args).code, BRIM_OK);
  in_place.each([&](int64_t o) { ASSERT_EQ(in_place.bits(o), expected.bits(o)) << o; });

  Tensor before = apart.clone();
  args.q = heads(buffer, 0, kH);
  args.k = heads(buffer, kH, kHk);
  args.q_out = heads(apart, 0, kH);
  args.k_out = heads(apart, kH, kHk);
  ASSERT_EQ(rope_forward(args).code, BRIM_OK);
  apart.each([&](int64_t o) {
    ASSERT_EQ(apart.bits(o), (o % (kRow * kD) < (kH + kHk) * kD ? expected : before).bits(o)) << o;
  });
}

TEST_P(CpuRope, ThreadsDoNotChangeBits) {
  const int before = omp_get_max_threads();
  for (int threads : {1, 2, 3, 7}) {
    omp_set_num_threads(threads);
    for (auto [s, h] : {std::pair<int64_t, int64_t>{1, 515}, {515, 1}, {64, 40}}) {
      RopeSpec spec;
      spec.q = spec.k = BRIM_BFLOAT16;
      spec.b = 2;
      spec.s = s;
      spec.h = h;
      spec.hk = 8;
      spec.d = spec.r = 128;
      check(spec);
    }
  }
  omp_set_num_threads(before);
}

INSTANTIATE_TEST_SUITE_P(Isa, CpuRope, testing::ValuesIn(present_isas()),
                         [](const auto& isa) { return isa_test_name(isa.param); });

}  // namespace
}  // namespace brim::test
