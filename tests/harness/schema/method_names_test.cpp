// Tests of MethodNames: labels, texts without like=, and names that stay different.
#include "harness/schema/method_names.h"

#include <gtest/gtest.h>

#include "harness/schema/case.h"

namespace attnbench {
namespace {

Record record_of_method(const std::string& method, const std::string& label = "", const std::string& baseline = "") {
  Case c;
  c.method = method;
  c.baseline = baseline;
  Record record(c);
  if (!label.empty()) record.set("method_label", label);
  return record;
}

TEST(MethodNames, AreLabelsOrTextsWithoutLike) {
  const MethodNames names({record_of_method("linear:chunk=64"), record_of_method("x/a.py:f:like=softmax"),
                           record_of_method("a.py:g:w=1,as=short,v=2"), record_of_method("a.py:h:like=softmax,w=1", "my method"),
                           record_of_method("a.py:g:as=given", "given")});
  EXPECT_EQ(names.of("linear:chunk=64"), "linear:chunk=64");
  EXPECT_EQ(names.of("x/a.py:f:like=softmax"), "x/a.py:f");
  EXPECT_EQ(names.of("a.py:g:w=1,as=short,v=2"), "short") << "also before a record says so";
  EXPECT_EQ(names.of("a.py:h:like=softmax,w=1"), "my method");
  EXPECT_EQ(names.of("a.py:other:like=softmax"), "a.py:other:like=softmax") << "is not among the records";
  EXPECT_EQ(names.text_of("my method"), "a.py:h:like=softmax,w=1");
  EXPECT_EQ(names.text_of("unknown"), "unknown");
  EXPECT_EQ(MethodNames().of("a.py:f:like=softmax"), "a.py:f:like=softmax");
}

TEST(MethodNames, AreDifferentForDifferentMethods) {
  const MethodNames names({record_of_method("a.py:f:w=1,like=softmax", "equal"), record_of_method("a.py:f:w=2", "equal"),
                           record_of_method("a.py:g"), record_of_method("a.py:g:like=linear"),
                           record_of_method("a.py:h:as=linear"), record_of_method("linear")});
  EXPECT_EQ(names.of("a.py:f:w=1,like=softmax"), "a.py:f:w=1");
  EXPECT_EQ(names.of("a.py:f:w=2"), "a.py:f:w=2");
  EXPECT_EQ(names.of("a.py:g"), "a.py:g");
  EXPECT_EQ(names.of("a.py:g:like=linear"), "a.py:g:like=linear");
  EXPECT_EQ(names.of("a.py:h:as=linear"), "a.py:h");
  EXPECT_EQ(names.of("linear"), "linear");
}

TEST(MethodNames, NameBaselines) {
  const auto plain = record_of_method("a.py:f", "", "a.py:g:like=softmax,as=short");
  const auto at_a_length = record_of_method("a.py:f", "", "a.py:g:like=softmax query_len=1024");
  EXPECT_EQ(MethodNames({plain}).baseline_name(plain), "short");
  EXPECT_EQ(MethodNames({at_a_length}).baseline_name(at_a_length), "a.py:g query_len=1024");
  EXPECT_EQ(MethodNames({record_of_method("linear")}).baseline_name(record_of_method("linear")), "");
}

}  // namespace
}  // namespace attnbench
