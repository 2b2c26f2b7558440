"""The paths of objects."""

from fastapi import APIRouter

router = APIRouter()
