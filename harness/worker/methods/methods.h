// Makes the methods that cases name: those of the registry, and functions of Python files, which are registered when they are
// first named.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <string>

#include "attn/method.h"
#include "harness/worker/context.h"

namespace attnbench {

// Makes the method of a text such as "linear", "linear-chunked:chunk=256" or "mine.py:attention:window=64". Throws
// c10::ValueError for an unknown method, a wrong option, a Python file that cannot be read or imported, and a function whose
// parameters are not those of an attention function; the message is meant for the user.
std::shared_ptr<attn::AttentionMethod> make_method(const std::string& text, const WorkerContext& context);

// The digest of the file that defines the method; empty for a method that is compiled into this program. Only for methods that
// make_method() has made.
std::string method_digest(const std::string& text);

// The version of the Python interpreter and of its torch, such as "3.11.7, torch 2.11.0". Only where this process has opened the
// file of a Python method.
std::string python_version();

// The path by which this process has loaded the library of LibTorch; empty if it is not known.
std::filesystem::path torch_library();

// Starts the Python interpreter and imports torch, but no file of a method. Throws c10::ValueError if that is not possible; the
// message is meant for the user.
void start_python();

// Forks this process, in which start_python() has returned, and returns what fork() does.
pid_t fork_with_python();

}  // namespace attnbench
