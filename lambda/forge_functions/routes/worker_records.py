"""The paths of worker records."""

from fastapi import APIRouter

router = APIRouter()
