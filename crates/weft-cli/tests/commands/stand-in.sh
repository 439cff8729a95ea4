#!/bin/sh
# Stands in for a program that `weft` starts.
echo "$@"
exit 7
