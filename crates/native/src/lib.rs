//! The Python extension module: conversion, release of the interpreter lock, errors.
