"""The paths of admin keys."""

from fastapi import APIRouter

router = APIRouter()
