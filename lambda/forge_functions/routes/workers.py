"""The paths of workers."""

from fastapi import APIRouter

router = APIRouter()
