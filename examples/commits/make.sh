#!/bin/sh
# make.sh FOLDER: a repository with the trainer as it was (tag v1), and one commit that makes the model wider.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/studies"
cp "$here/train.py" "$1/"
cp "$here/studies/wider.yaml" "$1/studies/"
cd "$1"
printf 'data/\n__pycache__/\n' > .gitignore
git init -q
git config user.name Example
git config user.email example@localhost
git add train.py .gitignore
git commit -q -m "Four features"
git tag v1
sed 's/^WIDTH = 4$/WIDTH = 64/' train.py > train.py.new
mv train.py.new train.py
git commit -q -a -m "64 features"
