// Tests of inputs from files: the two formats, which part of a tensor a problem takes, and the message of each error.
#include "harness/worker/inputs/input_file.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <string>

#include "harness/schema/json.h"
#include "harness/worker/inputs/inputs.h"
#include "harness/worker/measure.h"
#include "tests/support/errors_of.h"
#include "tests/support/method_helpers.h"
#include "tests/support/temp_folder.h"

namespace attnbench {
namespace {

InputSource source_of(const std::string& inputs, std::vector<attn::InputSpec> tensors = attn::query_key_value(),
                      double concentration = 1) {
  Case c;
  c.inputs = inputs;
  c.concentration = concentration;
  return InputSource::of(c, std::move(tensors));
}

std::string bytes_of_tensor(const at::Tensor& x) {
  const auto contiguous = x.contiguous();
  return {static_cast<const char*>(contiguous.const_data_ptr()), contiguous.nbytes()};
}

std::string little_endian(uint64_t number, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += char(number >> (8 * i));
  return text;
}

std::string safetensors_of(const std::string& header, const std::string& data) {
  return little_endian(header.size(), 8) + header + data;
}

std::string npy_of(const std::string& description, const std::string& data, char version = 1) {
  return std::string("\x93NUMPY") + version + '\0' + little_endian(description.size(), version == 1 ? 2 : 4) + description + data;
}

struct Qkv {
  at::Tensor q, k, v;
};

Qkv some_tensors(at::ScalarType dtype = at::kFloat) {
  const auto draw = [&](int64_t length, int64_t dim) { return at::randn({2, 3, length, dim}).to(dtype); };
  return {draw(7, 4), draw(9, 4), draw(9, 5)};
}

// A file that also holds another tensor and a description, as files of models do.
std::string safetensors_of(const Qkv& tensors, const std::string& dtype = "F32", const at::Tensor& further = {},
                           const char* name_of_further = "g") {
  Json header = {{"__metadata__", {{"model", "none"}}}};
  std::string data;
  const auto add = [&](const char* name, const at::Tensor& x, const std::string& type) {
    const auto bytes = bytes_of_tensor(x);
    header[name] = {{"dtype", type}, {"shape", x.sizes().vec()}, {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
  };
  add("other", at::arange(3), "I64");
  add("v", tensors.v, dtype);
  add("q", tensors.q, dtype);
  add("k", tensors.k, dtype);
  if (further.defined()) add(name_of_further, further, "F32");
  return safetensors_of(header.dump(), data);
}

attn::Problem problem_of_tensors(const Qkv& tensors) {
  attn::Problem p;
  p.batch = 2;
  p.heads = 3;
  p.head_dim = 4;
  p.value_dim = 5;
  p.query_len = tensors.q.size(2);
  p.key_len = tensors.k.size(2);
  return p;
}

TEST(InputFile, ReadsTheTensorsOfASafetensorsFile) {
  const TempFolder folder;
  for (const auto& [dtype, name] : {std::pair{at::kFloat, "F32"}, {at::kHalf, "F16"}, {at::kBFloat16, "BF16"}}) {
    const auto tensors = some_tensors(dtype);
    const InputFile file(folder.write("a.safetensors", safetensors_of(tensors, name)));
    const auto read = file.read(problem_of_tensors(tensors));
    EXPECT_EQ(read.q.scalar_type(), dtype);
    EXPECT_TRUE(at::equal(read.q, tensors.q) && at::equal(read.k, tensors.k) && at::equal(read.v, tensors.v)) << name;
  }
}

TEST(InputFile, ReadsTheArrayOfAnNpyFile) {
  const TempFolder folder;
  for (const auto& [dtype, name] : {std::pair{at::kFloat, "<f4"}, {at::kHalf, "<f2"}}) {
    for (const char version : {1, 2, 3}) {
      const auto all = at::randn({3, 2, 3, 7, 4}).to(dtype);
      const auto description = std::string("{'descr': '") + name + "', 'fortran_order': False, 'shape': (3, 2, 3, 7, 4), }   \n";
      const InputFile file(folder.write("a.npy", npy_of(description, bytes_of_tensor(all), version)));
      const auto read = file.read(attn::problem_of({7, 7, 4, 4}, at::kFloat, attn::Masking::none, 2, 3));
      EXPECT_TRUE(at::equal(read.q, all[0]) && at::equal(read.k, all[1]) && at::equal(read.v, all[2])) << name << int(version);
    }
  }
}

TEST(InputFile, ShorterProblemsTakePrefixes) {
  const TempFolder folder;
  const auto tensors = some_tensors();
  const InputFile file(folder.write("a.safetensors", safetensors_of(tensors)));
  auto p = problem_of_tensors(tensors);
  p.batch = 1;
  p.heads = 2;
  p.query_len = 3;
  p.key_len = 8;
  const auto read = file.read(p);
  const auto part = [](const at::Tensor& x, int64_t length) { return x.narrow(0, 0, 1).narrow(1, 0, 2).narrow(2, 0, length); };
  EXPECT_TRUE(at::equal(read.q, part(tensors.q, 3)));
  EXPECT_TRUE(at::equal(read.k, part(tensors.k, 8)));
  EXPECT_TRUE(at::equal(read.v, part(tensors.v, 8)));
}

TEST(InputFile, CheckNamesTheAxisThatDoesNotFit) {
  const TempFolder folder;
  const auto tensors = some_tensors();
  const auto path = folder.write("a.safetensors", safetensors_of(tensors));
  const InputFile file(path);
  const auto whole = problem_of_tensors(tensors);
  EXPECT_NO_THROW(file.check(whole));
  auto shorter = whole;
  shorter.query_len = 1;
  shorter.key_len = 2;
  EXPECT_NO_THROW(file.check(shorter));
  const auto message = [&](int64_t attn::Problem::*axis, int64_t value) {
    auto p = whole;
    p.*axis = value;
    return message_of<c10::ValueError>([&] { file.check(p); });
  };
  EXPECT_CONTAINS(message(&attn::Problem::batch, 1), path + ": batch = 1, but q is [2, 3, 7, 4], expected batch = 2");
  EXPECT_CONTAINS(message(&attn::Problem::heads, 8), "heads = 8, but q is [2, 3, 7, 4], expected heads = 3");
  EXPECT_CONTAINS(message(&attn::Problem::query_len, 8), "query_len: q is [2, 3, 7, 4], but 8 positions are needed");
  EXPECT_CONTAINS(message(&attn::Problem::key_len, 10), "key_len: k is [2, 3, 9, 4], but 10 positions are needed");
  EXPECT_CONTAINS(message(&attn::Problem::head_dim, 5), "head_dim = 5, but q is [2, 3, 7, 4], expected head_dim = 4");
  EXPECT_CONTAINS(message(&attn::Problem::value_dim, 4), "value_dim = 4, but v is [2, 3, 9, 5], expected value_dim = 5");
}

TEST(InputFile, DigestIsTheSha1OfTheFile) {
  const TempFolder folder;
  const auto path = folder.write(
      "a.npy", npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1, 1, 1, 1), }", std::string(12, '\0')));
  EXPECT_EQ(InputFile(path).digest(), "7a5eba7e9169717db5101f6fb6b14cbad448936b");
}

// The message with which a file of this name and contents is refused.
std::string refusal(const std::string& name, const std::string& contents) {
  const TempFolder folder;
  const auto path = folder.write(name, contents);
  const auto message = message_of<c10::ValueError>([&] { const InputFile file(path); });
  EXPECT_TRUE(message.starts_with(path + ": ")) << message;
  return message;
}

TEST(InputFile, ErrorsOfSafetensorsFilesNameTheByteAndWhatWasExpected) {
  const auto tensor = [](const std::string& shape, const std::string& offsets, const std::string& dtype = R"("F32")") {
    return R"({"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
  };
  const auto good = tensor("[1,1,1,1]", "[0,4]");
  const auto with_q = [&](const std::string& q) {
    return refusal("a.safetensors", safetensors_of(R"({"q":)" + q + R"(,"k":)" + good + R"(,"v":)" + good + "}", "0000"));
  };
  EXPECT_CONTAINS(refusal("a.safetensors", "abc"),
                  "byte 0: found the end of the file, expected 8 bytes of the length of the header");
  EXPECT_CONTAINS(refusal("a.safetensors", little_endian(1000, 8) + "{}"),
                  "byte 8: found the end of the file, expected 1000 bytes of the header");
  EXPECT_CONTAINS(refusal("a.safetensors", little_endian(uint64_t{1} << 62, 8)),
                  "byte 0: found a header of 4611686018427387904 bytes, expected at most 8388608 bytes");
  EXPECT_CONTAINS(refusal("a.safetensors", safetensors_of("{\"q\": x}", "")), "byte 14: found a header that is not JSON");
  EXPECT_CONTAINS(refusal("a.safetensors", safetensors_of("[1]", "")), "byte 8: found a header '[1]', expected a JSON object");
  EXPECT_CONTAINS(
      refusal("a.safetensors", safetensors_of(R"({"q_proj":1,"__metadata__":{}})", "")),
      "found a header in which no tensor has the name 'q', but there is 'q_proj', expected the tensors 'q', 'k' and 'v'");
  EXPECT_CONTAINS(with_q("7"), "'q' is '7', expected an object");
  EXPECT_CONTAINS(with_q(tensor("[1,1,1,1]", "[0,4]", R"("F64")")), R"('q' has the dtype '"F64"', expected F32, F16 or BF16)");
  EXPECT_CONTAINS(with_q(tensor("[1,1,1]", "[0,4]")), "'q' has the shape '[1,1,1]', expected [batch, heads, length, dim]");
  EXPECT_CONTAINS(with_q(tensor("[1,1,0,1]", "[0,0]")), "'q' has the shape '[1,1,0,1]'");
  EXPECT_CONTAINS(with_q(tensor("[1,1,-1,1]", "[0,4]")), "'q' has the shape '[1,1,-1,1]'");
  EXPECT_CONTAINS(with_q(tensor("[1,1,1,1]", "[0]")), "'q' has the data_offsets '[0]', expected [begin, end]");
  EXPECT_CONTAINS(with_q(tensor("[1,1,1,1]", "[0,8]")),
                  "expected as many bytes between the offsets as the shape and the dtype take");
  EXPECT_CONTAINS(with_q(tensor("[1,1,1,1]", "[4,0]")),
                  "expected as many bytes between the offsets as the shape and the dtype take");
  EXPECT_CONTAINS(with_q(tensor("[4294967296,4294967296,4294967296,1]", "[0,4]")), "expected as many bytes between the offsets");
  EXPECT_CONTAINS(with_q(tensor("[1,1,1,1]", "[1,5]")),
                  "'q' ends at byte 5 of the data, expected at most byte 4, where the file ends");
}

TEST(InputFile, ErrorsOfNpyFilesNameTheByteAndWhatWasExpected) {
  const auto described = [](const std::string& description, size_t bytes = 12) {
    return refusal("a.npy", npy_of(description, std::string(bytes, '\0')));
  };
  const std::string expected = "expected an array [3, batch, heads, length, dim] of float32 (<f4) or float16 (<f2) in C order";
  EXPECT_CONTAINS(refusal("a.npy", "\x93NUM"),
                  "byte 0: found the end of the file, expected 8 bytes of the header of an .npy file");
  EXPECT_CONTAINS(refusal("a.npy", "PK\3\4abcdefgh"), "byte 0: found 'PK??ab'");
  EXPECT_CONTAINS(refusal("a.npy", npy_of("{}", "", 9)), "byte 6: found version 9, expected version 1, 2 or 3");
  EXPECT_CONTAINS(refusal("a.npy", std::string("\x93NUMPY\1\0", 8) + little_endian(5000, 2)),
                  "byte 8: found a header of 5000 bytes, expected at most 4096 bytes");
  EXPECT_CONTAINS(described("{'descr': "), "byte 10: found a header '{'descr': ', " + expected);
  EXPECT_CONTAINS(described("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 1, 1, 1, 1), }"),
                  "found the dtype '<f8', " + expected);
  EXPECT_CONTAINS(described("{'descr': '<f4', 'fortran_order': True, 'shape': (3, 1, 1, 1, 1), }"),
                  "found Fortran order, " + expected);
  for (const auto* shape : {"2, 1, 1, 1, 1", "3, 1, 1, 1", "3, 1, 1, 0, 1", "3, 1, 1, -1, 1"})
    EXPECT_CONTAINS(described("{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::string(shape) + "), }"),
                    "found the shape [" + std::string(shape) + "], " + expected);
  EXPECT_CONTAINS(described("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1, 1, 1, 1), }", 11),
                  "byte 78: found 11 bytes of elements, expected 12 bytes for the shape [3, 1, 1, 1, 1]");
  EXPECT_CONTAINS(described("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4294967296, 4294967296, 1, 1), }"),
                  "expected 2^63 or more bytes");
}

TEST(InputFile, ErrorsOfPathsNameThem) {
  const TempFolder folder;
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { const InputFile file(folder.path("missing.npy")); }),
                  "missing.npy: no such file, expected a file of tensors");
  std::filesystem::create_directory(folder.path("b.npy"));
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { const InputFile file(folder.path("b.npy")); }), "b.npy: not a regular file");
  EXPECT_CONTAINS(refusal("a.pt", "abc"), "expected the name of a .safetensors or .npy file");
}

TEST(InputFile, NumbersThatAreNotFiniteAreRefusedWithTheirPlace) {
  const TempFolder folder;
  auto tensors = some_tensors();
  tensors.k[1][2][8][3] = NAN;
  const InputFile file(folder.write("a.safetensors", safetensors_of(tensors)));
  auto p = problem_of_tensors(tensors);
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { file.read(p); }),
                  "k[1, 2, 8, 3] is NaN or infinity, expected a finite number");
  p.key_len = 8;
  EXPECT_NO_THROW(file.read(p)) << "only the part that is used counts";
}

TEST(InputSource, OfAFileIsConvertedToTheDtypeOfTheCase) {
  const TempFolder folder;
  auto tensors = some_tensors();
  const auto path = folder.write("a.safetensors", safetensors_of(tensors));
  auto source = source_of("file:" + path);
  auto p = problem_of_tensors(tensors);
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    p.dtype = dtype;
    const auto inputs = make_inputs(p, 0, source);
    EXPECT_TRUE(at::equal(inputs.q, tensors.q.to(dtype)));
    EXPECT_TRUE(at::equal(make_inputs(p, 1, source).q, inputs.q)) << "the seed changes nothing";
  }
  p.dtype = at::kFloat;
  source.concentration = 3;
  EXPECT_TRUE(at::allclose(make_inputs(p, 0, source).q, tensors.q * 3));
  EXPECT_TRUE(at::equal(make_inputs(p, 0, source).k, tensors.k));
  tensors.q[0][0][0][0] = 1e6;
  folder.write("a.safetensors", safetensors_of(tensors));
  p.dtype = at::kHalf;
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { make_inputs(p, 0, source_of("file:" + path)); }),
                  "holds numbers that dtype = float16 cannot hold");
}

// The methods that read g take it from a file that has it, and do without it where it is not required.
TEST(InputFile, HoldsFurtherTensorsByName) {
  const TempFolder folder;
  const auto tensors = some_tensors();
  const auto g = at::randn({2, 3, 9});
  auto specs = attn::query_key_value();
  specs.push_back(attn::find_input("g"));
  const auto with_g = folder.write("g.safetensors", safetensors_of(tensors, "F32", g)),
             without = folder.write("a.safetensors", safetensors_of(tensors));
  auto p = problem_of_tensors(tensors);
  p.key_len = 8;
  const auto inputs = make_inputs(p, 0, source_of("file:" + with_g, specs));
  EXPECT_TRUE(at::equal(inputs.g, g.narrow(2, 0, 8)));
  EXPECT_TRUE(at::equal(inputs.v, tensors.v.narrow(2, 0, 8)));
  EXPECT_FALSE(make_inputs(p, 0, source_of("file:" + with_g)).g.defined()) << "another method does not read it";
  EXPECT_FALSE(make_inputs(p, 0, source_of("file:" + without, specs)).g.defined());
  specs.back().required = true;
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { source_of("file:" + without, specs); }),
                  "no tensor has the name 'g', but there is 'other', 'v', 'q', 'k', expected the tensors 'q', 'k', 'v' and 'g'");
  const auto data = at::randn({3, 2, 3, 7, 4});
  const auto npy = folder.write(
      "a.npy", npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2, 3, 7, 4)}\n", bytes_of_tensor(data)));
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { InputFile(npy, specs); }),
                  "an .npy file holds q, k and v alone, but the method needs g as well, expected a .safetensors file");
  p.key_len = 9;
  const auto longer = folder.write("long.safetensors", safetensors_of(tensors, "F32", at::randn({2, 3, 5})));
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { InputFile(longer, specs).check(p); }),
                  "key_len: g is [2, 3, 5], but 9 positions are needed");
}

// A case with sinks takes them from the file, which must hold them; a case without sinks leaves them there.
TEST(InputFile, HoldsSinksOfTheHeadsOfTheOutput) {
  const TempFolder folder;
  const auto tensors = some_tensors();
  auto specs = attn::query_key_value();
  specs.push_back(attn::find_input("sinks"));
  auto p = problem_of_tensors(tensors);
  const auto sinks = at::randn({p.heads});
  const auto path = folder.write("sinks.safetensors", safetensors_of(tensors, "F32", sinks, "sinks")),
             without = folder.write("a.safetensors", safetensors_of(tensors));
  Case c;
  c.inputs = "file:" + path;
  EXPECT_FALSE(make_inputs(p, 0, InputSource::of(c, specs)).sinks.defined());
  c.sinks = p.sinks = true;
  EXPECT_TRUE(at::equal(make_inputs(p, 0, InputSource::of(c, specs)).sinks, sinks));
  c.inputs = "file:" + without;
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { InputSource::of(c, specs); }), "no tensor has the name 'sinks'");
  const auto longer = folder.write("more.safetensors", safetensors_of(tensors, "F32", at::randn({p.heads + 1}), "sinks"));
  c.inputs = "file:" + longer;
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { InputSource::of(c, specs).file->check(p); }),
                  "the largest number of heads = 3, but sinks is [4]");
}

TEST(InputSource, ConcentrationMultipliesQAlone) {
  const auto p = attn::problem_of({50, 50, 8, 8}, at::kDouble, attn::Masking::none);
  const auto plain = make_inputs(p, 1, source_of("clustered")),
             scaled = make_inputs(p, 1, source_of("clustered", attn::query_key_value(), 2.5));
  EXPECT_TRUE(at::allclose(scaled.q, plain.q * 2.5));
  EXPECT_TRUE(at::equal(scaled.k, plain.k) && at::equal(scaled.v, plain.v));
}

TEST(InputSource, DecayPositionsDivideTheDecay) {
  const auto p = attn::problem_of({5000, 5000, 8, 8}, at::kDouble, attn::Masking::causal);
  auto source = source_of("normal", {attn::find_input("q"), attn::find_input("v"), attn::find_input("g")});
  const auto usual = make_inputs(p, 1, source);
  EXPECT_FALSE(usual.k.defined()) << "the method does not read it";
  EXPECT_NEAR(usual.g.mean().item<double>(), -1.0 / 20, 0.002);
  source.decay_positions = 100;
  const auto slow = make_inputs(p, 1, source);
  EXPECT_TRUE(at::allclose(slow.g * 5, usual.g));
  EXPECT_TRUE(at::equal(slow.q, usual.q) && at::equal(slow.v, usual.v));
}

TEST(Measure, TakesInputsFromAFile) {
  const TempFolder folder;
  Qkv tensors{at::randn({2, 3, 400, 8}), at::randn({2, 3, 400, 8}), at::randn({2, 3, 400, 4})};
  const auto path = folder.write("a.safetensors", safetensors_of(tensors));
  Case c;
  c.inputs = "file:" + path;
  c.batch = 2;
  c.heads = 3;
  c.head_dim = 8;
  c.value_dim = 4;
  c.query_len = 350;
  c.threads = 1;
  c.warmup_s = c.time_budget_s = 0;
  c.max_disturbance = 1e6;
  c.complete();
  for (const auto* protocol : {"forward", "forward_backward", "prefill", "decode"}) {
    c.method = "linear";
    c.protocol = protocol;
    c.complete();
    const auto record = measure(c, {.quality = true});
    ASSERT_TRUE(record.measured()) << protocol << ": " << record.text("reason");
    EXPECT_EQ(record.text("inputs_digest").size(), 40U);
    // All heads of a file are compared.
    if (c.protocol != "decode") {
      EXPECT_GT(record.number("quality_rows"), 5 * 2 * 3 * 63) << protocol;
    }
  }
  // The steps after the prompt take 32 more tokens than the file has.
  c.query_len = 380;
  c.key_len = 0;
  c.complete();
  const auto planned = plan(c);
  EXPECT_EQ(planned.text("failure_kind"), kind::usage);
  EXPECT_EQ(planned.text("failure_field"), "inputs");
  EXPECT_CONTAINS(planned.text("reason"), "problem: inputs = file:");
  EXPECT_CONTAINS(planned.text("reason"), "q is [2, 3, 400, 8], but 412 positions are needed");
}

}  // namespace
}  // namespace attnbench
