"""The paths of bundles."""

from fastapi import APIRouter

router = APIRouter()
