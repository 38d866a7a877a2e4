#!/bin/sh
# Write rules.yml and dashboard.json of this folder again.
set -eu
cd "$(dirname "$0")"
deployment="llama-3.1-8b --gpu h100-sxm --seq 32k --batch 8 --exporter dcgm --peak-tokens-per-s 2500"
kvplan monitor rules $deployment --output rules.yml
kvplan monitor dashboard $deployment --output dashboard.json
