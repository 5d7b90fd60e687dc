"""Runs the command as people do. Usage: cli_test.py PATH_OF_BRIM [unittest's arguments]"""

import csv
import json
import os
import subprocess
import sys
import tempfile
import unittest

BRIM = "brim"
EXAMPLE = os.path.join(os.path.dirname(__file__), "..", "examples", "llama-3-8b.config.json")
DEVICES = ["A100", "L40S", "RTX 4090", "H100", "H200", "B200", "RTX 5090"]
MODELS = ["llama-2-7b", "llama-3-8b", "llama-3-70b", "qwen2.5-7b", "qwen2.5-72b", "qwen3-8b", "gemma-3-12b",
          "mistral-7b", "phi-4", "deepseek-v3", "gpt-neox-20b"]


def brim(*arguments):
    return subprocess.run([BRIM, *arguments], capture_output=True, text=True, timeout=300)


class Command(unittest.TestCase):
    def run_ok(self, *arguments):
        done = brim(*arguments)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def run_refused(self, *arguments):
        done = brim(*arguments)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        return done.stdout + done.stderr

    def plan_works(self):
        return brim("plan", "--device", "H200", "--tokens", "8").returncode == 0


class Help(Command):
    def test_no_arguments_print_help(self):
        text = self.run_ok().stdout
        for word in ["info", "check", "bench", "plan", "Usage"]:
            self.assertIn(word, text)

    def test_every_subcommand_has_help(self):
        for name in ["info", "check", "bench", "plan"]:
            self.assertIn("--help", self.run_ok(name, "--help").stdout)

    def test_version(self):
        self.assertRegex(self.run_ok("--version").stdout, r"^brim \d+\.\d+\.\d+\n$")

    def test_unknown_subcommand(self):
        self.run_refused("fly")


class Info(Command):
    def test_info(self):
        text = self.run_ok("info").stdout
        for word in ["brim", "backend cpu", "backend cuda", "backend reference", "instruction sets", "device cpu",
                     "rope_forward"]:
            self.assertIn(word, text)


class Check(Command):
    def test_json_has_one_object_a_case(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "check.json")
            self.run_ok("check", "--op", "rope", "--mode", "backward", "--backend", "cpu", "--dtype", "float64",
                        "--json", path)
            with open(path) as file:
                rows = json.load(file)
        self.assertGreater(len(rows), 10)
        for row in rows:
            self.assertEqual((row["op"], row["mode"], row["backend"], row["dtype"]),
                             ("rope", "backward", "cpu", "float64"))
            self.assertEqual(set(row["shape"]), {"tokens", "heads", "kv_heads", "head_dim"})
            self.assertTrue(row["path"])
            self.assertLessEqual(row["max_ulp"], row["limit_ulp"])
            self.assertIs(row["ok"], True)

    def test_csv(self):
        done = self.run_ok("check", "--backend", "reference", "--dtype", "float64", "--csv", "-")
        rows = list(csv.DictReader(done.stdout.splitlines()))
        self.assertGreater(len(rows), 10)
        self.assertEqual({row["ok"] for row in rows}, {"true"})

    def test_list_names_cases_and_runs_none(self):
        lines = self.run_ok("check", "--list", "--mode", "forward").stdout.splitlines()
        self.assertGreater(len(lines), 100)
        self.assertEqual({line.split()[0] for line in lines}, {"rope_forward", "rms_norm_forward", "add_rms_norm_forward"})

    def test_a_model_gives_the_shapes(self):
        done = self.run_ok("check", "--op", "rope", "--model", "qwen3-8b", "--mode", "forward", "--backend", "cpu", "--dtype",
                           "bfloat16", "--json", "-")
        rows = json.loads(done.stdout)
        self.assertEqual({(row["shape"]["heads"], row["shape"]["kv_heads"], row["shape"]["head_dim"]) for row in rows},
                         {(32, 8, 128)})
        self.assertTrue(all(row["ok"] and row["dtype"] == "bfloat16" for row in rows))
        listed = self.run_ok("check", "--list", "--mode", "forward", "--model", "qwen3-8b").stdout.split()
        self.assertEqual([listed.count(op) for op in ["rope_forward", "rms_norm_forward", "add_rms_norm_forward"]],
                         [3 * 2, 3 * 2, 3])  # types; out of place and in place; hidden and heads; hidden
        self.run_refused("check", "--large", "--model", "qwen3-8b")
        self.assertIn("unknown model 'qwen'", self.run_refused("check", "--model", "qwen"))

    def test_seed_changes_the_data(self):
        def worst(seed):
            done = self.run_ok("check", "--op", "rope", "--mode", "forward", "--backend", "reference", "--dtype", "float16",
                               "--json", "-", "--seed", seed)
            return [row["max_ulp"] for row in json.loads(done.stdout)]

        self.assertEqual(worst("5"), worst("5"))
        self.assertNotEqual(worst("5"), worst("6"))

    def test_unknown_names_list_the_known(self):
        self.assertIn("unknown op 'ropes'; known: rope", self.run_refused("check", "--op", "ropes"))
        self.assertIn("unknown mode 'sideways'; known: forward, backward",
                      self.run_refused("check", "--mode", "sideways"))
        self.assertIn("unknown backend 'gpu'; known: cpu, cuda, reference",
                      self.run_refused("check", "--backend", "gpu"))
        self.assertIn("unknown dtype 'half'; known: float32, bfloat16, float16, float64",
                      self.run_refused("check", "--dtype", "half"))

    def test_a_file_that_cannot_be_written(self):
        text = self.run_refused("check", "--backend", "reference", "--dtype", "float64", "--json",
                                "/no/such/folder/x")
        self.assertIn("cannot write /no/such/folder/x", text)


class Bench(Command):
    FIELDS = {"name", "run_name", "run_type", "iterations", "real_time", "cpu_time", "time_unit", "op", "mode",
              "provider", "device", "dtype", "shape", "clock", "p20", "p80", "bytes", "wall_time", "wall_fraction",
              "peak_bytes"}

    def bench_json(self, *arguments, op="rope", backend="cpu"):
        return json.loads(self.run_ok("bench", "--op", op, "--quick", "--backend", backend, "--json", "-", *arguments).stdout)

    def test_rows_have_the_fields_of_the_specification(self):
        file = self.bench_json("--model", "llama-3-8b", "--tokens", "64", "--dtype", "float32")
        for field in ["device", "versions", "date", "command"]:
            self.assertIn(field, file["context"])
        self.assertIn("--tokens 64", file["context"]["command"])
        rows = file["benchmarks"]
        self.assertEqual(len(rows), 8)  # two modes, in and out of place, brim and the copy
        for row in rows:
            self.assertLessEqual(self.FIELDS, set(row))
            self.assertEqual(row["shape"], {"tokens": 64, "heads": 32, "kv_heads": 8, "head_dim": 128})
            self.assertEqual(row["bytes"], 2 * 64 * 40 * 128 * 4)
            self.assertEqual((row["op"], row["dtype"], row["clock"], row["time_unit"]), ("rope", "float32", "host", "us"))
            self.assertLessEqual(row["p20"], row["real_time"])
            self.assertLessEqual(row["real_time"], row["p80"])
            self.assertAlmostEqual(row["wall_fraction"], row["wall_time"] / row["real_time"])
        self.assertEqual([row["provider"] for row in rows], ["brim", "copy"] * 4)
        self.assertEqual({row["mode"] for row in rows}, {"forward", "backward"})
        for row in rows:
            if row["provider"] == "brim":
                self.assertEqual(row["peak_bytes"], 0 if row["in_place"] else row["bytes"] // 2)

    def test_norms_count_the_rows_that_must_move(self):
        moved = {("rms_norm", "forward"): 2, ("rms_norm", "backward"): 3, ("add_rms_norm", "forward"): 4,
                 ("add_rms_norm", "backward"): 4}
        for (op, mode), times in moved.items():
            rows = self.bench_json("--tokens", "4", "--model", "qwen3-8b", "--mode", mode, "--layout", "contiguous", "weight32",
                                   op=op, backend="reference")["benchmarks"]
            shapes = [(4, 4096)] if op == "add_rms_norm" else [(4, 4096), (4 * 32, 128)]
            self.assertEqual(len(rows), 2 * 2 * len(shapes))
            self.assertEqual({(row["shape"]["rows"], row["shape"]["hidden"]) for row in rows}, set(shapes))
            for row in rows:
                self.assertEqual((row["op"], row["mode"], row["dtype"]), (op, mode, "bfloat16"))
                self.assertEqual(row["bytes"], times * row["shape"]["rows"] * row["shape"]["hidden"] * 2)

    def test_several_token_counts_and_dtypes(self):
        rows = self.bench_json("--model", "gpt-neox-20b", "--tokens", "16", "32", "--mode", "forward", "--dtype",
                               "bfloat16", "float16")["benchmarks"]
        self.assertEqual({row["shape"]["tokens"] for row in rows}, {16, 32})
        self.assertEqual({row["dtype"] for row in rows}, {"bfloat16", "float16"})

    def test_every_model_and_layout(self):
        for model in MODELS:
            rows = self.bench_json("--model", model, "--tokens", "3", "--mode", "forward")["benchmarks"]
            self.assertTrue(rows, model)
        for layout in ["bshd", "bhsd", "thd", "packed", "transposed"]:
            rows = self.bench_json("--model", "llama-3-8b", "--tokens", "3", "--layout", layout)["benchmarks"]
            self.assertTrue(rows, layout)

    def test_a_config_file(self):
        rows = self.bench_json("--model", EXAMPLE, "--tokens", "16")["benchmarks"]
        self.assertEqual(rows[0]["shape"], {"tokens": 16, "heads": 32, "kv_heads": 8, "head_dim": 128})

    def test_the_table_for_people(self):
        text = self.run_ok("bench", "--op", "rope", "--quick", "--model", "llama-3-8b", "--tokens", "16", "--backend",
                           "cpu").stdout
        for word in ["rope_forward", "rope_backward", "in place", "out of place", "GB/s", "of a copy"]:
            self.assertIn(word, text)
        self.assertNotIn("\x1b", text)  # no colours where there is no terminal

    def test_a_config_that_lacks_a_field_names_it(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "config.json")
            with open(path, "w") as file:
                json.dump({"hidden_size": 64, "vocab_size": 100}, file)
            text = self.run_refused("bench", "--model", path)
        self.assertIn("config.json: field 'num_attention_heads' is missing", text)

    def test_unknown_names_list_the_known(self):
        text = self.run_refused("bench", "--model", "gpt-9")
        self.assertIn("unknown model 'gpt-9'", text)
        for model in MODELS:
            self.assertIn(model, text)
        self.assertIn("unknown layout 'hbsd'; known: bshd", self.run_refused("bench", "--layout", "hbsd"))
        self.assertIn("unknown layout 'bshd'; known: contiguous", self.run_refused("bench", "--op", "rms_norm", "--layout", "bshd"))
        text = self.run_refused("bench", "--op", "rope", "--path", "avx1024", "--tokens", "3", "--backend", "cpu", "--quick")
        self.assertIn("no path 'avx1024'", text)


class Plan(Command):
    def setUp(self):
        if not self.plan_works():
            self.skipTest("no cuda plans in this build")

    def test_every_device(self):
        for device in DEVICES:
            text = self.run_ok("plan", "--op", "rope", "--device", device, "--model", "llama-3-8b", "--tokens", "4096").stdout
            self.assertIn(device, text)
            self.assertIn("plain" if device in ("A100", "L40S", "RTX 4090") else "bulk", text)

    def test_all_devices_when_none_is_named(self):
        text = self.run_ok("plan", "--tokens", "128", "--op", "rope", "--mode", "forward").stdout
        for device in DEVICES:
            self.assertIn(device, text)

    def test_float64_is_refused(self):
        self.assertIn("float64", self.run_refused("plan", "--dtype", "float64", "--device", "H200"))


class PlanErrors(Command):
    def test_unknown_device_lists_the_known(self):
        text = self.run_refused("plan", "--device", "V100")
        self.assertIn("unknown device 'V100'", text)
        for device in DEVICES:
            self.assertIn(device, text)


if __name__ == "__main__":
    BRIM = sys.argv.pop(1)
    unittest.main()
