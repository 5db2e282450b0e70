// The functions that the worker calls in the module for Python methods, libattnbench-python.so.
#pragma once

#include <sys/types.h>

#include <string>

#include "attn/registry.h"

extern "C" {
// Opens a Python file and makes the registry's entry of a function in it, under the name `name`. Sets the digest of the file.
// Throws c10::ValueError with a message for the user if the file cannot be read or imported, or the function is not an attention
// function.
__attribute__((visibility("default"))) void attnbench_python_entry(const std::string& file, const std::string& function,
                                                                   const std::string& name, attn::MethodEntry& entry,
                                                                   std::string& digest);
// The version of the interpreter and of its torch, such as "3.11.7, torch 2.11.0". Only after attnbench_python_entry() has
// returned.
__attribute__((visibility("default"))) const char* attnbench_python_version();
// Starts the interpreter and imports torch. Throws c10::ValueError as the first function does.
__attribute__((visibility("default"))) void attnbench_python_start();
// Forks this process and its interpreter, and returns what fork() does, with its errno.
__attribute__((visibility("default"))) pid_t attnbench_python_fork();
}
