// Helpers for tests of the messages of exceptions.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>

namespace attnbench {

// Returns the message of the Error that `call` throws. Fails the test when `call` throws nothing or an exception of another type.
template <class Error, class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "an exception of another type was thrown: " << error.what();
    return "";
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline testing::AssertionResult holds(const char*, const char*, const std::string& text, const std::string& part) {
  if (contains(text, part)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is not in: " << text;
}

}  // namespace attnbench

#define EXPECT_CONTAINS(text, part) EXPECT_PRED_FORMAT2(::attnbench::holds, text, part)
