"""Commits as arms: their files are read from git's object store, pinned by hash, and laid out for each run.

`objects` reads the store of a repository and never its working tree; `worktree` says whether that tree is as
committed, and takes it as a commit of its own; `resolve` pins what the commits of a study mean, and `keeping` keeps
them; `layout` writes the files of a pin, and `compare_commits` says whether they are still what they were.

No command of git here runs a hook or a filter, sees a replaced object, fetches anything, or touches the user's index.
"""
