"""Datasets and runs at a URL: `s3://`, `gs://`, `https://` and whatever else fsspec knows; `hf://` is the hub's.

What is fetched is checked by its hash and kept in a cache of bounded size. The environment may say

    LRC_CACHE           its folder; ~/.cache/lrc-jepa where it says nothing
    LRC_CACHE_GB        the most that fetched files take there; 50
    LRC_REMOTE_SECONDS  how long one file is tried for before it is given up; 300
"""
